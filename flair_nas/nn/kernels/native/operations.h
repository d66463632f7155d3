// The operations and gate forms, with the names and the order of `flair_nas/nn/operations.py`, which Python checks. An
// operation gives y from z. A form gives the scale of the gate from the output g of its network.
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

//     name      scale   derivative
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
#define FORM(name, scale, slope) name,
  FLAIR_NAS_GATE_FORMS(FORM)
#undef FORM
      count
};
}  // namespace gate_form

constexpr int OPERATIONS = operation::count;

// Refuses codes that this file does not know.
inline void check_operation(long code) {
  if (code != operation::mixed && (code <= operation::drop || code >= operation::count))
    throw std::invalid_argument("operation");
}
inline void check_form(long code) {
  if (code < 0 || code >= gate_form::count) throw std::invalid_argument("form");
}

// op(z), for a code that `check_operation` accepts.
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

// The derivative of op, from z and y = op(z).
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

// The scale of a gate whose network has output g, and its derivative.
template <class V>
inline V form_scale(long code, V g) {
  switch (code) {
#define FORM(name, scale, slope) \
  case gate_form::name:           \
    return scale;
    FLAIR_NAS_GATE_FORMS(FORM)
#undef FORM
  }
  __builtin_unreachable();
}

template <class V>
inline V form_slope(long code, V g) {
  (void)g;
  switch (code) {
#define FORM(name, scale, slope) \
  case gate_form::name:           \
    return slope;
    FLAIR_NAS_GATE_FORMS(FORM)
#undef FORM
  }
  __builtin_unreachable();
}
