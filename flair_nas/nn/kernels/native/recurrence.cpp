// The functions that Python calls.
#include "backward.h"
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

int flair_nas_forward_float32(const Problem<float, float>* problem) { return run<Forward<float, float>>(problem); }
int flair_nas_backward_float32(const Problem<float, float>* problem) { return run<Backward<float, float>>(problem); }
int flair_nas_forward_float64(const Problem<double, double>* problem) { return run<Forward<double, double>>(problem); }
int flair_nas_backward_float64(const Problem<double, double>* problem) { return run<Backward<double, double>>(problem); }
#if defined(__AVX512BF16__)
int flair_nas_forward_bfloat16(const Problem<float, bfloat16>* problem) { return run<Forward<float, bfloat16>>(problem); }
int flair_nas_backward_bfloat16(const Problem<float, bfloat16>* problem) { return run<Backward<float, bfloat16>>(problem); }
#endif
}
