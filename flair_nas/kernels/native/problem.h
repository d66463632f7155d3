// What one run of a recurrence over a sequence needs; `_MEMBERS` in `kernels/native.py` has its members in the same order.
//
// Rows are tokens: step t of a packed batch has the rows offset(t) + b, b < sizes[t]. Vectors of the hidden size H and the
// input size D have zeros behind them up to a whole number of vector registers: strides Hp and Dp. Pre-activations
// [c | z] have stride 2 Hp. T is float or double; P, of what enters a product and comes out of it, is T or bfloat16.
#pragma once
#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <new>
#include <vector>

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include "edge.h"
#include "product.h"

template <class T, class P>
struct Problem {
  std::int64_t threads, steps, rows, batch, hidden_size, input_size, keep;
  std::int64_t states, pairs, levels;
  std::int64_t norm;  // of the states: 0 none, 1 by the batch, 2 by running statistics
  std::int64_t history, form, gate_pairs;  // the input gate has `history` nodes; 0 for none
  double momentum, epsilon;

  const std::int64_t* sizes;  // [steps]

  // the cell: states in an order in which tails come before heads; pairs (tail, head) sorted by head
  const std::int64_t* level_start;  // [levels + 1]: which states each level has; the states of one read earlier levels
  const std::int64_t* first_pair;   // [states + 1]: the pairs into each state
  const std::int64_t* tail;         // [pairs]
  const std::int64_t* code;         // [pairs]: an operation, or MIXED
  const T* scale;                   // [states]: of the sum of the edges into a state
  const T* share_of_output;         // [states]
  const T* shares;                  // [pairs, 5]
  const T* weight_hidden;           // [H, 2H]
  const T* const* weight_nodes;     // [states], [H, 2H] each; none for state 0
  T *running_mean, *running_variance;  // [Hp], or null

  const std::int64_t* gate_first;   // [history + 1]
  const std::int64_t* gate_tail;    // [gate_pairs]
  const std::int64_t* gate_code;    // [gate_pairs]
  const std::int64_t* entry_code;   // [history]
  const T *gate_shares, *entry_shares;  // [gate_pairs, 5], [history, 5]
  const T* weight_input;            // [D, 2H]
  const T* weight_entry;            // [history, H, D]
  const T* weight_gate;             // [history, D, D]

  // the sequence; null where there is none
  const T* projected;  // x W_x, [rows, 2 Hp], if there is no input gate
  const T* data;       // x, [rows, Dp], if there is one
  const T* hidden;     // [batch, Hp]
  const T* past;       // states before that one, latest first, [history - 1, batch, Hp]
  const T* mask;       // [batch, Hp]
  const T* factor;     // what the state gate multiplies h_{t-1} with, [rows, Hp]

  // what comes out, and what the backward pass needs: `rows` is the batch where nothing is kept, as then each step
  // overwrites the one before. `input_*` are what enters products: null where that is the state itself.
  T* output;        // [all rows, Hp]
  T* gated;         // h_{t-1} times factor, [rows, Hp], if there is a factor
  T* state;         // [states, rows, Hp]
  T* deviation;     // 1 / standard deviation, [states, steps, Hp], with norm
  P* pre_start;     // [c_0 | z_0], [rows, 2 Hp]
  P* pre;           // [pairs, rows, 2 Hp]
  P* input_hidden;  // [rows, Hp]
  P* input_state;   // [states, rows, Hp]
  P* input_entry;   // past states, earliest first, then each h_{t-1}: [(history - 1) * batch + all rows, Hp]
  P* entered;       // their products, [(history - 1) * batch + all rows, history, Dp]
  T* gate_state;    // [history, rows, Dp]
  P* gate_input;    // [history, rows, Dp]
  P* gate_pre;      // [gate_pairs, rows, Dp]
  T* gate_factor;   // what multiplies x, [rows, Dp]
  P* input_data;    // [rows, Dp]

  // the backward pass: gradients of what came out, and of what went in. Those of pre-activations may replace them.
  const T* of_output;  // [rows, Hp]
  P *of_pre_start, *of_pre, *of_entered, *of_gate_pre;
  T* of_hidden;        // [batch, Hp]
  T* of_past;          // [history - 1, batch, Hp]
  T* of_data;          // [rows, Dp]
  T* of_factor;        // [rows, Hp]
  T* of_shares;        // [pairs, 5], or null
  T *of_gate_shares, *of_entry_shares;
};

// What both passes derive from a problem.
template <class T, class P>
struct Layout {
  const Problem<T, P>& p;
  long hidden, input, pre;   // strides Hp, Dp and 2 Hp
  long stored;               // rows of what is kept
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
    for (long n = 0; n < p.pairs; ++n) edges.emplace_back(p.code[n], p.shares + n * 5);
    for (long n = 0; n < p.gate_pairs; ++n) gate_edges.emplace_back(p.gate_code[n], p.gate_shares + n * 5);
    for (long i = 0; i < p.history; ++i) entry_edges.emplace_back(p.entry_code[i], p.entry_shares + i * 5);
  }

  long base(long t) const { return p.keep ? offset[t] : 0; }  // of rows that are kept
  long slot(long t) const {                                   // of the state before step t among the entries
    return t >= 0 ? (p.history - 1) * p.batch + offset[t] : (p.history - 1 + t) * p.batch;
  }
  const T* before(long t) const { return t ? p.output + offset[t - 1] * hidden : p.hidden; }  // h_{t-1}
  const T* highway(long t) const { return p.factor ? p.gated + base(t) * hidden : before(t); }
  T* state(long i, long t) const { return p.state + (i * stored + base(t)) * hidden; }
};

// Asks for huge pages: with small ones, the first use of much memory takes longer than what is computed there.
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

// Memory for packed weights. The last one given back is kept for the next call, whose sizes are mostly the same.
class Packed {
 public:
  explicit Packed(long bytes) : bytes_(bytes) {
    {
      std::lock_guard<std::mutex> lock(spare().mutex);
      if (spare().data != nullptr && spare().bytes >= bytes && spare().bytes <= 2 * bytes) {
        data_ = spare().data;
        bytes_ = spare().bytes;
        spare().data = nullptr;
        return;
      }
    }
    data_ = std::aligned_alloc(64, (bytes / 64 + 1) * 64);
    if (data_ == nullptr) throw std::bad_alloc();
    advise(data_, bytes);
  }
  Packed(const Packed&) = delete;
  ~Packed() {
    std::lock_guard<std::mutex> lock(spare().mutex);
    std::free(spare().data);
    spare().data = data_;
    spare().bytes = bytes_;
  }

  void* data() const { return data_; }

 private:
  struct Spare {
    std::mutex mutex;
    void* data = nullptr;
    long bytes = 0;
  };
  static Spare& spare() {
    static Spare one;
    return one;
  }

  void* data_;
  long bytes_;
};
