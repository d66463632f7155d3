// The functions that Python calls.
#include "backward.h"
#include "elementwise.h"
#include "forward.h"

namespace {
// Runs a pass; returns 0, or 1 without enough memory.
template <class Pass, class Problem>
int run(const Problem* problem) try {
  Pass(*problem).run();
  return 0;
} catch (const std::bad_alloc&) {
  return 1;
}
}  // namespace

extern "C" {
const char* flair_nas_isa() {
#if defined(__AVX512BF16__)
  return "AVX512-BF16";
#elif defined(__AVX512F__)
  return "AVX512";
#elif defined(__AVX__)
  return "AVX";
#elif defined(__aarch64__)
  return "NEON";
#else
  return "128-bit vectors";
#endif
}

// The size of a vector; strides of features are multiples of it.
int flair_nas_vector_bytes() { return VECTOR_BYTES; }

// The names that Python and this library share: the members of `Problem`, as "type name;" each, operations, gate forms.
const char* flair_nas_members() {
  return
#define MEMBER(type, name) #type " " #name ";"
#include "members.h"
#undef MEMBER
      ;
}
const char* flair_nas_operations() {
#define OPERATION(name, value, slope) #name " "
  return FLAIR_NAS_OPERATIONS(OPERATION);
#undef OPERATION
}
const char* flair_nas_gate_forms() {
#define FORM(name, scale, slope) #name " "
  return FLAIR_NAS_GATE_FORMS(FORM);
#undef FORM
}

// Asks for huge pages for memory that PyTorch allocated.
void flair_nas_advise(void* data, long bytes) { advise(data, bytes); }

// The members of `Loop`, as parameters, and a loop of them.
#define LOOP_MEMBERS(T)                                                                                                \
  long threads, long steps, long size, long code, const std::int64_t *sizes, const T *pre, const T *weight,            \
      long weight_stride, const T *first
#define LOOP(T) Loop<T>{threads, steps, size, code, sizes, pre, weight, weight_stride, first}
#define ELEMENTWISE(T, name)                                                                                             \
  void flair_nas_edge_forward_##name(long threads, long rows, long size, long code, const T* mixing, const T* pre,     \
                                     const T* state, T* out) {                                                         \
    edge_forward<T>(threads, rows, size, code, mixing, pre, state, out);                                               \
  }                                                                                                                    \
  void flair_nas_edge_backward_##name(long threads, long rows, long size, long code, const T* mixing,                  \
                                      const T* grad_out, const T* pre, const T* state, T* grad_pre, T* grad_state,     \
                                      T* grad_mixing) {                                                                \
    edge_backward<T>(threads, rows, size, code, mixing, grad_out, pre, state, grad_pre, grad_state, grad_mixing);      \
  }                                                                                                                    \
  void flair_nas_loop_forward_##name(LOOP_MEMBERS(T), T* states) { LOOP(T).forward(states); }                          \
  void flair_nas_loop_backward_##name(LOOP_MEMBERS(T), const T* states, const T* grad_states, T* grad_pre,             \
                                      T* grad_weight, T* grad_first) {                                                 \
    LOOP(T).backward(states, grad_states, grad_pre, grad_weight, grad_first);                                          \
  }
ELEMENTWISE(float, float32)
ELEMENTWISE(double, float64)
#undef ELEMENTWISE
#undef LOOP
#undef LOOP_MEMBERS

int flair_nas_forward_float32(const Problem<float, float>* problem) { return run<Forward<float, float>>(problem); }
int flair_nas_backward_float32(const Problem<float, float>* problem) { return run<Backward<float, float>>(problem); }
int flair_nas_forward_float64(const Problem<double, double>* problem) { return run<Forward<double, double>>(problem); }
int flair_nas_backward_float64(const Problem<double, double>* problem) { return run<Backward<double, double>>(problem); }
#if defined(__AVX512BF16__)
int flair_nas_forward_bfloat16(const Problem<float, bfloat16>* problem) { return run<Forward<float, bfloat16>>(problem); }
int flair_nas_backward_bfloat16(const Problem<float, bfloat16>* problem) { return run<Backward<float, bfloat16>>(problem); }
#endif
}
