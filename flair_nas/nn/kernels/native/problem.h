// The data of one run of a recurrence over a sequence.
//
// Rows are tokens: step t of a packed batch has the rows offset(t) + b, b < sizes[t]. Vectors of the hidden size H and the
// input size D are padded with zeros to whole vector registers: strides Hp and Dp. Pre-activations [c | z] have stride
// 2 Hp. T is float or double. P, the type of inputs and outputs of products, is T or bfloat16.
#pragma once
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <vector>

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include "edge.h"
#include "product.h"

template <class T, class P>
struct Problem {
#define MEMBER(type, name) type name;
#include "members.h"
#undef MEMBER
};

// The layout that both passes derive from a problem.
template <class T, class P>
struct Layout {
  const Problem<T, P>& p;
  long hidden, input, pre;   // strides Hp, Dp and 2 Hp
  long stored;               // rows of the tensors that are kept
  std::vector<long> offset;  // [steps + 1]
  std::vector<Edge<T>> edges, gate_edges, entry_edges;

  explicit Layout(const Problem<T, P>& problem)
      : p(problem),
        hidden(blocks(p.hidden_size, LANES<T>) * LANES<T>),
        input(blocks(p.input_size, LANES<T>) * LANES<T>),
        pre(2 * hidden),
        stored(p.keep ? p.rows : p.batch),
        offset(p.steps + 1) {
    for (long t = 0; t < p.steps; ++t) offset[t + 1] = offset[t] + p.sizes[t];
    for (long n = 0; n < p.pairs; ++n) edges.emplace_back(p.code[n], p.mixing + n * OPERATIONS);
    for (long n = 0; n < p.gate_pairs; ++n) gate_edges.emplace_back(p.gate_code[n], p.gate_mixing + n * OPERATIONS);
    for (long i = 0; i < p.history; ++i) entry_edges.emplace_back(p.entry_code[i], p.entry_mixing + i * OPERATIONS);
  }

  long base(long t) const { return p.keep ? offset[t] : 0; }  // first row of step t in kept tensors
  long slot(long t) const {  // first row of the state before step t among the entries
    return t >= 0 ? (p.history - 1) * p.batch + offset[t] : (p.history - 1 + t) * p.batch;
  }
  const T* before(long t) const { return t ? p.output + offset[t - 1] * hidden : p.hidden; }  // h_{t-1}
  const T* carry(long t) const { return p.gated ? p.gated + base(t) * hidden : before(t); }
  T* state(long i, long t) const { return p.state + (i * stored + base(t)) * hidden; }
};

// Asks for huge pages; with small pages, the first use of much memory takes longer than the computation.
inline void advise(void* data, long bytes) {
#if defined(MADV_HUGEPAGE)
  constexpr std::uintptr_t page = 1 << 21;
  const auto begin = (reinterpret_cast<std::uintptr_t>(data) + page - 1) / page * page;
  const auto end = (reinterpret_cast<std::uintptr_t>(data) + bytes) / page * page;
  if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
#else
  (void)data, (void)bytes;
#endif
}

// Memory for packed weights; a thread reuses that of its last call, because sizes are mostly the same.
class Packed {
 public:
  explicit Packed(long bytes) {
    if (memory_ && bytes <= bytes_ && bytes_ <= 2 * bytes) return;
    memory_.reset(std::aligned_alloc(64, (bytes / 64 + 1) * 64));
    if (!memory_) throw std::bad_alloc();
    bytes_ = bytes;
    advise(memory_.get(), bytes);
  }

  void* data() const { return memory_.get(); }

 private:
  struct Free {
    void operator()(void* data) const { std::free(data); }
  };
  static inline thread_local std::unique_ptr<void, Free> memory_;
  static inline thread_local long bytes_ = 0;
};
