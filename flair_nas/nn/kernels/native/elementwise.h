// Elementwise work on all tokens of a ragged batch at once: an edge between two nodes, and the loop of an elementwise
// recurrence. Rows are tokens: states [rows, H], pre-activations [c | z]. Rows are not padded to whole vectors.
#pragma once
#include <algorithm>
#include <vector>

#include "edge.h"
#include "team.h"

template <class T>
inline Vector<T> load_part(const T* from, long lanes) {
  if (lanes >= LANES<T>) return load(from);
  Vector<T> value = {};
  std::memcpy(&value, from, lanes * sizeof(T));
  return value;
}

template <class T>
inline void store_part(T* to, Vector<T> value, long lanes) {
  std::memcpy(to, &value, std::min<long>(lanes, LANES<T>) * sizeof(T));
}

// Calls work(id, part) for parts of `count` items, in up to `threads` threads.
template <class Work>
void in_parts(long count, long threads, Work work) {
  threads = std::max<long>(1, std::min(count, threads));
#if defined(_OPENMP)
#pragma omp parallel for num_threads(static_cast <int>(threads)) schedule(static, 1) if (threads > 1)
#endif
  for (long id = 0; id < threads; ++id) work(id, Part(count, static_cast<int>(id), static_cast<int>(threads)));
}

// out = s + σ(c) (op(z) - s), or the mixture of all operations.
template <class T>
void edge_forward(long threads, long rows, long size, long code, const T* mixing, const T* pre, const T* state, T* out) {
  constexpr long L = LANES<T>;
  const Edge<T> edge(code, mixing);
  in_parts(rows, threads, [&](long, Part part) {
    for (long row = part.begin; row < part.end; ++row)
      for (long f = 0; f < size; f += L) {
        const long lanes = size - f, here = row * size + f, c = 2 * row * size + f;
        auto value = edge.forward(load_part(pre + c, lanes), load_part(pre + c + size, lanes), load_part(state + here, lanes));
        store_part(out + here, value, lanes);
      }
  });
}

template <class T>
void edge_backward(long threads, long rows, long size, long code, const T* mixing, const T* grad_out, const T* pre,
                   const T* state, T* grad_pre, T* grad_state, T* grad_mixing) {
  constexpr long L = LANES<T>;
  using V = Vector<T>;
  const Edge<T> edge(code, mixing);
  std::vector<T> sums(std::max<long>(threads, 1) * OPERATIONS);
  in_parts(rows, threads, [&](long id, Part part) {
    V grad_mix[OPERATIONS] = {};
    for (long row = part.begin; row < part.end; ++row)
      for (long f = 0; f < size; f += L) {
        const long lanes = size - f, here = row * size + f, c = 2 * row * size + f;
        V grad_c, grad_z, grad_s;
        edge.backward(load_part(grad_out + here, lanes), load_part(pre + c, lanes), load_part(pre + c + size, lanes),
                      load_part(state + here, lanes), grad_c, grad_z, grad_s, grad_mix);
        store_part(grad_pre + c, grad_c, lanes);
        store_part(grad_pre + c + size, grad_z, lanes);
        store_part(grad_state + here, grad_s, lanes);
      }
    for (int k = 0; k < OPERATIONS; ++k) sums[id * OPERATIONS + k] = sum<T>(grad_mix[k]);
  });
  if (!grad_mixing) return;
  for (int k = 0; k < OPERATIONS; ++k) {
    grad_mixing[k] = 0;
    for (long id = 0; id < std::max<long>(threads, 1); ++id) grad_mixing[k] += sums[id * OPERATIONS + k];
  }
}

// A loop over a ragged batch: s_t = s_{t-1} + σ(c_t + v s_{t-1}) (op(z_t) - s_{t-1}).
template <class T>
struct Loop {
  long threads, steps, size, code;
  const std::int64_t* sizes;  // [steps]
  const T* pre;               // [c | z], [rows, 2 size]
  const T* weight;  // v, [H], or a row for each sequence, `weight_stride` apart
  long weight_stride;
  const T* first;  // s before the first step, [B, H]

  void forward(T* states) const {
    const Edge<T> edge(code, nullptr);
    over_parts([&](long begin, long end) {
      const T* before = first;
      long row = 0;
      for (long t = 0; t < steps; before = states + row * size, row += sizes[t], ++t)
        for (long b = 0; b < sizes[t]; ++b)
          for (long f = begin; f < end; f += L) {
            const long lanes = size - f;
            const T* c = pre + (row + b) * 2 * size + f;
            V s = load_part(before + b * size + f, lanes);
            V gate = load_part(c, lanes) + load_part(weight + b * weight_stride + f, lanes) * s;
            store_part(states + (row + b) * size + f, edge.forward(gate, load_part(c + size, lanes), s), lanes);
          }
    });
  }

  // grad_weight and grad_first start as zeros.
  void backward(const T* states, const T* grad_states, T* grad_pre, T* grad_weight, T* grad_first) const {
    const Edge<T> edge(code, nullptr);
    long rows = 0;
    for (long t = 0; t < steps; ++t) rows += sizes[t];
    over_parts([&](long begin, long end) {
      V unused[OPERATIONS];
      for (long t = steps - 1, row = rows; t >= 0; --t) {
        row -= sizes[t];
        const T* before = t ? states + (row - sizes[t - 1]) * size : first;
        for (long b = 0; b < sizes[t]; ++b)
          for (long f = begin; f < end; f += L) {
            const long lanes = size - f;
            const T* c = pre + (row + b) * 2 * size + f;
            T *to = grad_pre + (row + b) * 2 * size + f, *carry = grad_first + b * size + f;
            T* to_weight = grad_weight + b * weight_stride + f;
            V s = load_part(before + b * size + f, lanes), v = load_part(weight + b * weight_stride + f, lanes);
            V delta = load_part(grad_states + (row + b) * size + f, lanes) + load_part(carry, lanes), grad_c, grad_z, grad_s;
            edge.backward(delta, load_part(c, lanes) + v * s, load_part(c + size, lanes), s, grad_c, grad_z, grad_s, unused);
            store_part(to, grad_c, lanes);
            store_part(to + size, grad_z, lanes);
            store_part(carry, grad_s + grad_c * v, lanes);
            store_part(to_weight, load_part(to_weight, lanes) + grad_c * s, lanes);
          }
      }
    });
  }

 private:
  using V = Vector<T>;
  static constexpr long L = LANES<T>;

  // Calls work(first feature, last) for parts of the features, each in a thread.
  template <class Work>
  void over_parts(Work work) const {
    in_parts((size + L - 1) / L, threads, [&](long, Part part) { work(part.begin * L, std::min(part.end * L, size)); });
  }
};
