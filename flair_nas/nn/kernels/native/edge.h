// An edge between two nodes: one operation or a mixture of all, and its gradient.
#pragma once
#include "operations.h"

// One operation, or the mixture of all with mixing weights p_k; `drop` adds nothing.
template <class T>
struct Edge {
  using V = Vector<T>;
  static constexpr int FIRST = operation::drop + 1;
  long code;
  V mixing[OPERATIONS] = {};
  V carried = {};  // the sum of the mixing weights but that of drop

  Edge(long code, const T* weights) : code(code) {
    if (code == operation::mixed) {
      for (int k = FIRST; k < OPERATIONS; ++k) mixing[k] = mixing[k] + weights[k];
      for (int k = FIRST; k < OPERATIONS; ++k) carried += mixing[k];
    } else {
      carried = carried + 1;
    }
  }

  bool mixed() const { return code == operation::mixed; }

  // The values of all operations; the compiler merges common subexpressions.
  static void all(V z, V (&values)[OPERATIONS]) {
#define OPERATION(name, value, slope) values[operation::name] = value;
    FLAIR_NAS_OPERATIONS(OPERATION)
#undef OPERATION
  }

  // Σ p_k op_k(z).
  V mix(V z) const {
    if (!mixed()) return operate(code, z);
    V value[OPERATIONS], total = {};
    all(z, value);
    for (int k = FIRST; k < OPERATIONS; ++k) total += mixing[k] * value[k];
    return total;
  }

  // Σ p_k (s + σ(c) (op_k(z) - s)) (I-DARTS eq. 1 in the highway form).
  V forward(V c, V z, V s) const {
    V from = carried * s;
    return from + sigmoid(c) * (mix(z) - from);
  }

  // Returns the gradient of z from that of `mix`; adds to the gradients of the mixing weights.
  V mix_gradient(V gradient, V z, V (&grad_mixing)[OPERATIONS]) const {
    if (!mixed()) return gradient * slope(code, z, operate(code, z));
    V value[OPERATIONS], total = {};
    all(z, value);
    for (int k = FIRST; k < OPERATIONS; ++k) {
      total += mixing[k] * slope<V>(k, z, value[k]);
      grad_mixing[k] += gradient * value[k];
    }
    return gradient * total;
  }

  // Computes the gradients of c, z and s from that of `forward`; adds to the gradients of the mixing weights.
  void backward(V gradient, V c, V z, V s, V& grad_c, V& grad_z, V& grad_s, V (&grad_mixing)[OPERATIONS]) const {
    V gate = sigmoid(c), through = gradient * gate, around = gradient - through;
    V mixed_value, inner;
    if (!mixed()) {
      mixed_value = operate(code, z);
      inner = slope(code, z, mixed_value);
      grad_s = around;
    } else {
      V value[OPERATIONS];
      all(z, value);
      mixed_value = inner = V{};
      V both = around * s;
      for (int k = FIRST; k < OPERATIONS; ++k) {
        mixed_value += mixing[k] * value[k];
        inner += mixing[k] * slope<V>(k, z, value[k]);
        grad_mixing[k] += both + through * value[k];
      }
      grad_s = around * carried;
    }
    grad_c = through * (1 - gate) * (mixed_value - carried * s);
    grad_z = through * inner;
  }
};
