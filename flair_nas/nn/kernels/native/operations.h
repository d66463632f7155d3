// The operations and gate forms, with the names and the order of `flair_nas/genotype/operations.py`, which Python
// checks. An operation gives y from z. A form gives the scale of the gate from the output g of its network.
#pragma once
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
};
}  // namespace gate_form

constexpr int OPERATIONS = operation::count;

// op(z), and its derivative from z and y = op(z).
#define VALUE(name, value, slope) case operation::name: return value;
#define SLOPE(name, value, slope) case operation::name: return slope;
template <class V>
inline V operate(long code, V z) {
  switch (code) { FLAIR_NAS_OPERATIONS(VALUE) }
  __builtin_unreachable();
}
template <class V>
inline V slope(long code, [[maybe_unused]] V z, [[maybe_unused]] V y) {
  switch (code) { FLAIR_NAS_OPERATIONS(SLOPE) }
  __builtin_unreachable();
}
#undef VALUE
#undef SLOPE

// The scale of a gate whose network has output g, and its derivative.
#define VALUE(name, scale, slope) case gate_form::name: return scale;
#define SLOPE(name, scale, slope) case gate_form::name: return slope;
template <class V>
inline V form_scale(long code, V g) {
  switch (code) { FLAIR_NAS_GATE_FORMS(VALUE) }
  __builtin_unreachable();
}
template <class V>
inline V form_slope(long code, [[maybe_unused]] V g) {
  switch (code) { FLAIR_NAS_GATE_FORMS(SLOPE) }
  __builtin_unreachable();
}
#undef VALUE
#undef SLOPE
