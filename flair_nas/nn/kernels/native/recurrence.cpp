// What Python calls.
#include "backward.h"
#include "forward.h"

namespace {
template <class T, class P>
int forward(const Problem<T, P>* problem) try {
  Forward<T, P>(*problem).run();
  return 0;
} catch (const std::bad_alloc&) {
  return 1;
} catch (const std::invalid_argument&) {
  return 2;
}

template <class T, class P>
int backward(const Problem<T, P>* problem) try {
  Backward<T, P>(*problem).run();
  return 0;
} catch (const std::bad_alloc&) {
  return 1;
} catch (const std::invalid_argument&) {
  return 2;
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

// Of a vector: of features, strides are whole numbers of it.
int flair_nas_vector_bytes() { return VECTOR_BYTES; }

// What Python and this library must agree on, by name: the members of `Problem`, as "type name;" each, the operations
// and the forms of gates.
const char* flair_nas_members() {
  return
#define MEMBER(type, name) #type " " #name ";"
#include "members.h"
#undef MEMBER
      ;
}
long flair_nas_problem_bytes() { return sizeof(Problem<float, float>); }
const char* flair_nas_operations() {
#define OPERATION(name, value, slope) #name " "
  return FLAIR_NAS_OPERATIONS(OPERATION);
#undef OPERATION
}
const char* flair_nas_gate_forms() {
#define FORM(name, factor, slope) #name " "
  return FLAIR_NAS_GATE_FORMS(FORM);
#undef FORM
}

// Wants huge pages for memory that PyTorch has given.
void flair_nas_advise(void* data, long bytes) { advise(data, bytes); }

int flair_nas_forward_float32(const Problem<float, float>* problem) { return forward(problem); }
int flair_nas_backward_float32(const Problem<float, float>* problem) { return backward(problem); }
int flair_nas_forward_float64(const Problem<double, double>* problem) { return forward(problem); }
int flair_nas_backward_float64(const Problem<double, double>* problem) { return backward(problem); }
#if defined(__AVX512BF16__)
int flair_nas_forward_bfloat16(const Problem<float, bfloat16>* problem) { return forward(problem); }
int flair_nas_backward_bfloat16(const Problem<float, bfloat16>* problem) { return backward(problem); }
#endif
}
