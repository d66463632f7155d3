// An edge between two nodes: one operation, or a mixture of all, with its gradient.
#pragma once
#include "operations.h"

// The operations of one edge, or their mixture with weights a_k; `drop` adds nothing.
template <class T>
struct Edge {
  using V = Vector<T>;
  static constexpr int FIRST = operation::drop + 1;
  long code;
  V share[OPERATIONS] = {};
  V carried = {};  // the sum of the shares that are not drop's

  Edge(long code, const T* shares) : code(code) {
    check_operation(code);
    if (code == operation::mixed) {
      for (int k = FIRST; k < OPERATIONS; ++k) share[k] = share[k] + shares[k];
      for (int k = FIRST; k < OPERATIONS; ++k) carried += share[k];
    } else {
      carried = carried + 1;
    }
  }

  bool mixed() const { return code == operation::mixed; }

  // The values of all operations; what several of them compute is left to the compiler to see.
  static void all(V z, V (&values)[OPERATIONS]) {
#define OPERATION(name, value, slope) values[operation::name] = value;
    FLAIR_NAS_OPERATIONS(OPERATION)
#undef OPERATION
  }

  // Σ a_k op_k(z).
  V mix(V z) const {
    if (!mixed()) return operate(code, z);
    V value[OPERATIONS], total = {};
    all(z, value);
    for (int k = FIRST; k < OPERATIONS; ++k) total += share[k] * value[k];
    return total;
  }

  // Σ a_k (s + σ(c) (op_k(z) - s)): I-DARTS eq. 1 in the highway form.
  V forward(V c, V z, V s) const {
    V from = carried * s;
    return from + sigmoid(c) * (mix(z) - from);
  }

  // The gradient of `mix` by z, for a gradient of its value; adds to that of the shares.
  V mix_gradient(V gradient, V z, V (&of_shares)[OPERATIONS]) const {
    if (!mixed()) return gradient * slope(code, z, operate(code, z));
    V value[OPERATIONS], total = {};
    all(z, value);
    for (int k = FIRST; k < OPERATIONS; ++k) {
      total += share[k] * slope<V>(k, z, value[k]);
      of_shares[k] += gradient * value[k];
    }
    return gradient * total;
  }

  // The gradients of `forward` by c, z and s, for a gradient of its value; adds to that of the shares.
  void backward(V gradient, V c, V z, V s, V& of_c, V& of_z, V& of_s, V (&of_shares)[OPERATIONS]) const {
    V gate = sigmoid(c), through = gradient * gate, around = gradient - through;
    V value_of_mix, inner;
    if (!mixed()) {
      value_of_mix = operate(code, z);
      inner = slope(code, z, value_of_mix);
      of_s = around;
    } else {
      V value[OPERATIONS];
      all(z, value);
      value_of_mix = inner = V{};
      V both = around * s;
      for (int k = FIRST; k < OPERATIONS; ++k) {
        value_of_mix += share[k] * value[k];
        inner += share[k] * slope<V>(k, z, value[k]);
        of_shares[k] += both + through * value[k];
      }
      of_s = around * carried;
    }
    of_c = through * (1 - gate) * (value_of_mix - carried * s);
    of_z = through * inner;
  }
};
