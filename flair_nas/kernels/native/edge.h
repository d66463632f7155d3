// An edge between two nodes: one operation, or a mixture of all, with its gradient.
#pragma once
#include "vector.h"

// The operations of one edge, or their mixture with weights a_k; `drop` adds nothing.
template <class T>
struct Edge {
  using V = Vector<T>;
  long code;
  V share[5] = {};
  V carried = {};  // the sum of the shares that are not drop's

  Edge(long code, const T* shares) : code(code) {
    if (code == MIXED) {
      for (int k = 1; k < 5; ++k) share[k] = share[k] + shares[k];
      for (int k = 1; k < 5; ++k) carried += share[k];
    } else {
      carried = carried + 1;
    }
  }

  // The values of the four operations.
  static void all(V z, V (&value)[5]) {
    if constexpr (sizeof(T) == 4) {
      V bounded = z < -40 ? V{} - 40 : z;
      bounded = bounded > 40 ? V{} + 40 : bounded;
      V e = exponential(-bounded);
      value[TANH] = tanh_from(z, e);
      value[SIGMOID] = 1 / (1 + e);
    } else {
      value[TANH] = hyperbolic(z);
      value[SIGMOID] = sigmoid(z);
    }
    value[RELU] = positive(z);
    value[IDENTITY] = z;
  }

  // Σ a_k op_k(z).
  V mix(V z) const {
    if (code != MIXED) return operate(code, z);
    V value[5];
    all(z, value);
    return share[1] * value[1] + share[2] * value[2] + share[3] * value[3] + share[4] * value[4];
  }

  // Σ a_k (s + σ(c) (op_k(z) - s)): I-DARTS eq. 1 in the highway form.
  V forward(V c, V z, V s) const {
    V from = carried * s;
    return from + sigmoid(c) * (mix(z) - from);
  }

  // The gradient of `mix` by z, for a gradient of its value; adds to that of the shares.
  V mix_gradient(V gradient, V z, V (&of_shares)[5]) const {
    if (code != MIXED) return gradient * slope(code, z, operate(code, z));
    V value[5], total = {};
    all(z, value);
    for (int k = 1; k < 5; ++k) {
      total += share[k] * slope(k, z, value[k]);
      of_shares[k] += gradient * value[k];
    }
    return gradient * total;
  }

  // The gradients of `forward` by c, z and s, for a gradient of its value; adds to that of the shares.
  void backward(V gradient, V c, V z, V s, V& of_c, V& of_z, V& of_s, V (&of_shares)[5]) const {
    V gate = sigmoid(c), through = gradient * gate, around = gradient - through;
    V mixed, inner;
    if (code != MIXED) {
      mixed = operate(code, z);
      inner = slope(code, z, mixed);
      of_s = around;
    } else {
      V value[5];
      all(z, value);
      mixed = inner = V{};
      V both = around * s;
      for (int k = 1; k < 5; ++k) {
        mixed += share[k] * value[k];
        inner += share[k] * slope(k, z, value[k]);
        of_shares[k] += both + through * value[k];
      }
      of_s = around * carried;
    }
    of_c = through * (1 - gate) * (mixed - carried * s);
    of_z = through * inner;
  }
};
