// The operations of the search space and the forms of inter-cell gates, as `flair_nas/nn/operations.py` has them: the same
// names in the same order, which Python checks. An operation gives y from z, a form what multiplies a vector from the
// output g of the gate's network; each with its derivative.
#pragma once
#include <stdexcept>

#include "vector.h"

//          name      y                      dy/dz
#define FLAIR_NAS_OPERATIONS(OPERATION)                             \
  OPERATION(drop,     V{},                   V{})                   \
  OPERATION(tanh,     hyperbolic(z),         1 - y * y)             \
  OPERATION(relu,     positive(z),           z > 0 ? V{} + 1 : V{}) \
  OPERATION(sigmoid,  1 / (1 + falling(z)),  y * (1 - y))           \
  OPERATION(identity, z,                     V{} + 1)               \

//     name      factor  derivative
#define FLAIR_NAS_GATE_FORMS(FORM)                                  \
  FORM(product,  g,      V{} + 1)                                   \
  FORM(residual, 1 + g,  V{} + 1)                                   \

namespace operation {
enum : long {
#define OPERATION(name, value, slope) name,
  FLAIR_NAS_OPERATIONS(OPERATION)
#undef OPERATION
      count,
  mixed = -1
};
}  // namespace operation

namespace gate_form {
enum : long {
#define FORM(name, factor, slope) name,
  FLAIR_NAS_GATE_FORMS(FORM)
#undef FORM
      count
};
}  // namespace gate_form

constexpr int OPERATIONS = operation::count;

// Refuses what Python and this file do not agree on.
inline void check_operation(long code) {
  if (code != operation::mixed && (code <= operation::drop || code >= operation::count))
    throw std::invalid_argument("operation");
}
inline void check_form(long code) {
  if (code < 0 || code >= gate_form::count) throw std::invalid_argument("form");
}

// op(z); `code` is one that `check_operation` lets pass.
template <class V>
inline V operate(long code, V z) {
  switch (code) {
#define OPERATION(name, value, slope) \
  case operation::name:               \
    return value;
    FLAIR_NAS_OPERATIONS(OPERATION)
#undef OPERATION
  }
  __builtin_unreachable();
}

// Its derivative, from z and y = op(z).
template <class V>
inline V slope(long code, V z, V y) {
  (void)z, (void)y;
  switch (code) {
#define OPERATION(name, value, slope) \
  case operation::name:               \
    return slope;
    FLAIR_NAS_OPERATIONS(OPERATION)
#undef OPERATION
  }
  __builtin_unreachable();
}

// What a gate with output g multiplies with.
template <class V>
inline V form_factor(long code, V g) {
  switch (code) {
#define FORM(name, factor, slope) \
  case gate_form::name:           \
    return factor;
    FLAIR_NAS_GATE_FORMS(FORM)
#undef FORM
  }
  __builtin_unreachable();
}

template <class V>
inline V form_slope(long code, V g) {
  (void)g;
  switch (code) {
#define FORM(name, factor, slope) \
  case gate_form::name:           \
    return slope;
    FLAIR_NAS_GATE_FORMS(FORM)
#undef FORM
  }
  __builtin_unreachable();
}
