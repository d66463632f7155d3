// The backward pass: gradients of all pre-activations; Python computes those of the weights from them, one product each.
// Activations are computed again from the pre-activations.
#pragma once
#include "problem.h"

template <class T, class P>
class Backward {
  using V = Vector<T>;
  static constexpr long L = LANES<T>;

 public:
  explicit Backward(const Problem<T, P>& problem)
      : p(problem),
        at(problem),
        hidden_panels(blocks(p.hidden_size, 2 * L)),
        input_panels(blocks(p.input_size, 2 * L)),
        packed(packed_size() * sizeof(P)),
        grad_state(p.states * p.batch * at.hidden),
        grad_hidden(p.batch * at.hidden),
        grad_carry(p.batch * at.hidden),
        grad_node(std::max<long>(p.history, 1) * p.batch * at.input) {
    P* next = static_cast<P*>(packed.data());
    auto take = [&](Weight<T, P>& weight, long depth, long panels) {
      weight.packed = next;
      weight.depth = depth;
      next += depth * panels * 2 * L;
    };
    take(hidden, at.pre, hidden_panels);
    nodes.resize(p.states);
    for (long i = 1; i < p.states; ++i) take(nodes[i], at.pre, hidden_panels);
    gate.resize(p.history);
    if (p.history) {
      take(input, at.pre, input_panels);
      take(entry, p.history * at.input, hidden_panels);
      for (auto& weight : gate) take(weight, at.input, input_panels);
    }
    find_heads(p.first_pair, p.tail, p.states, head, pairs_from);
    find_heads(p.gate_first, p.gate_tail, p.history, gate_head, gate_pairs_from);
  }

  void run() {
    const long threads = std::min<long>(p.threads, hidden_panels), edges_in_all = p.pairs + p.gate_pairs + p.history;
    std::vector<T> sums(threads * edges_in_all * OPERATIONS);
    // sums over threads need the same threads each time to be reproducible
    const bool summed = p.grad_mixing || p.grad_gate_mixing || p.grad_entry_mixing;
    in_team(threads, summed, [&](Team& team, int id) { run(team, id, sums.data() + id * edges_in_all * OPERATIONS); });
    for (long edge = 0; edge < edges_in_all; ++edge) {
      T* to = edge < p.pairs ? p.grad_mixing : edge < p.pairs + p.gate_pairs ? p.grad_gate_mixing : p.grad_entry_mixing;
      if (to == nullptr) continue;
      const long row = edge < p.pairs ? edge : edge < p.pairs + p.gate_pairs ? edge - p.pairs : edge - p.pairs - p.gate_pairs;
      for (long k = 0; k < OPERATIONS; ++k) {
        to[row * OPERATIONS + k] = 0;
        for (long id = 0; id < threads; ++id) to[row * OPERATIONS + k] += sums[(id * edges_in_all + edge) * OPERATIONS + k];
      }
    }
  }

 private:
  const Problem<T, P>& p;
  const Layout<T, P> at;
  const long hidden_panels, input_panels;
  Packed packed;
  std::vector<T> grad_state, grad_hidden, grad_carry, grad_node;
  Weight<T, P> hidden, input, entry;
  std::vector<Weight<T, P>> nodes, gate;
  std::vector<long> head, gate_head;
  std::vector<std::vector<long>> pairs_from, gate_pairs_from;

  // Finds the head of each pair, and the pairs from each node.
  static void find_heads(const std::int64_t* first, const std::int64_t* tail, long nodes, std::vector<long>& head,
                         std::vector<std::vector<long>>& from) {
    from.resize(nodes);
    for (long i = 0; i < nodes; ++i)
      for (long pair = first[i]; pair < first[i + 1]; ++pair) {
        head.push_back(i);
        from[tail[pair]].push_back(pair);
      }
  }

  long packed_size() const {
    const long deep = p.states * at.pre + p.history * at.input, wide = p.history ? at.pre + p.history * at.input : 0;
    return (deep * hidden_panels + wide * input_panels) * 2 * L;
  }

  // Packs the transposes of `count` matrices [features, size], `apart` from one another, as [count * width, features].
  void pack(const Weight<T, P>& weight, const T* from, long features, long stride, long size, long width, long count,
            long apart, Part panels) {
    for (long panel = panels.begin; panel < panels.end; ++panel) {
      P* to = weight.panel(panel);
      const long feature = panel * 2 * L;
      if (size < width || feature + 2 * L > features) std::memset(to, 0, weight.depth * 2 * L * sizeof(P));
      for (long number = 0; number < count; ++number)
        pack_columns<T>(to, from + number * apart + feature * stride, stride, number * width, size, features - feature);
    }
  }

  void pack_all(Part mine, Part mine_input) {
    const long size = p.hidden_size, width = p.input_size;
    auto pairs = [&](const Weight<T, P>& weight, const T* from, long features, Part panels) {
      pack(weight, from, features, 2 * size, size, at.hidden, 2, size, panels);
    };
    pairs(hidden, p.weight_hidden, size, mine);
    for (long i = 1; i < p.states; ++i) pairs(nodes[i], p.weight_nodes[i], size, mine);
    if (!p.history) return;
    pairs(input, p.weight_input, width, mine_input);
    pack(entry, p.weight_entry, size, width, width, at.input, p.history, size * width, mine);
    for (long i = 0; i < p.history; ++i)
      pack(gate[i], p.weight_gate + i * width * width, width, width, width, at.input, 1, 0, mine_input);
  }

  // --- positions ---

  T* gradient(long i) { return grad_state.data() + i * p.batch * at.hidden; }
  const T* gate_state(long i, long t) const { return p.gate_state + (i * p.rows + at.offset[t]) * at.input; }
  P* grad_pre(long pair, long t) const { return p.grad_pre + (pair * p.rows + at.offset[t]) * at.pre; }

  // --- the steps ---

  void run(Team& team, int id, T* sums) {
    const Part mine(hidden_panels, id, team.size()), mine_input(input_panels, id, team.size());
    const long begin = mine.begin * 2 * L, end = std::min(mine.end * 2 * L, at.hidden);
    pack_all(mine, mine_input);
    for (long b = 0; b < p.batch; ++b)
      for (long f = begin; f < end; f += L) store(grad_hidden.data() + b * at.hidden + f, V{});
    team.wait();
    for (long t = p.steps - 1; t >= 0; --t) {
      finish(t, begin, end);
      for (long level = p.levels - 1; level > 0; --level) {
        for (long i = p.level_start[level]; i < p.level_start[level + 1]; ++i) {
          pull(i, t, mine);
          complete(i, t, begin, end);
          run_node(i, t, begin, end, sums);
        }
        team.wait();
      }
      pull(0, t, mine);
      complete(0, t, begin, end);
      start(t, begin, end);
      team.wait();
      leave(t, mine);
      if (p.history) {
        run_gate(t, mine_input, team, sums + p.pairs * OPERATIONS);
        team.wait();
        multiply_entries(t, p.sizes[t], mine, grad_hidden.data());
      }
    }
    for (long b = 0; b < p.batch; ++b)
      for (long f = begin; f < end; f += L) store(p.grad_hidden + b * at.hidden + f, load(grad_hidden.data() + b * at.hidden + f));
    for (long t = 1 - p.history; t < 0; ++t) {
      T* to = p.grad_past + (-1 - t) * p.batch * at.hidden;
      for (long b = 0; b < p.batch; ++b)
        for (long f = begin; f < end; f += L) store(to + b * at.hidden + f, V{});
      multiply_entries(t, p.batch, mine, to);
    }
  }

  // Passes the gradient of h_t to the output nodes.
  void finish(long t, long begin, long end) {
    for (long b = 0; b < p.sizes[t]; ++b)
      for (long f = begin; f < end; f += L) {
        V total = load(p.grad_output + (at.offset[t] + b) * at.hidden + f) + load(grad_hidden.data() + b * at.hidden + f);
        for (long i = 0; i < p.states; ++i) store(gradient(i) + b * at.hidden + f, p.output_weight[i] * total);
      }
  }

  V masked(V value, long b, long f) const { return p.mask ? value * load(p.mask + b * at.hidden + f) : value; }

  // Adds the gradient of a node through the products of its heads.
  void pull(long i, long t, Part mine) {
    const auto& pairs = pairs_from[i];
    if (pairs.empty()) return;
    T* to = gradient(i);
    over_columns<T>(p.sizes[t], at.hidden, mine, [&](long panel, long row, long count, T* out) {
      for (std::size_t n = 0; n < pairs.size(); ++n) {
        const Weight<T, P>& weight = nodes[head[pairs[n]]];
        multiply<T, P>(count, grad_pre(pairs[n], t) + row * at.pre, at.pre, weight.panel(panel), weight.depth, out, n > 0);
      }
    }, [&](long b, long f, V value) {
      store(to + b * at.hidden + f, load(to + b * at.hidden + f) + masked(value, b, f));
    });
  }

  // Passes the gradient through the normalisation.
  void complete(long i, long t, long begin, long end) {
    if (!p.norm) return;
    const long rows = p.sizes[t];
    T* values = gradient(i);
    const T* normal = at.state(i, t);
    for (long f = begin; f < end; f += L) {
      const V inverse = load(p.deviation + (i * p.steps + t) * at.hidden + f);
      V mean = {}, along = {};
      if (p.norm == 1) {
        for (long b = 0; b < rows; ++b) {
          V value = load(values + b * at.hidden + f);
          mean += value;
          along += value * load(normal + b * at.hidden + f);
        }
        mean /= T(rows);
        along /= T(rows);
      }
      for (long b = 0; b < rows; ++b) {
        V value = load(values + b * at.hidden + f) - mean - along * load(normal + b * at.hidden + f);
        store(values + b * at.hidden + f, value * inverse);
      }
    }
  }

  static void add(T* sums, const V (&grad_mixing)[OPERATIONS]) {
    for (int k = Edge<T>::FIRST; k < OPERATIONS; ++k) sums[k] += sum<T>(grad_mixing[k]);
  }

  void run_node(long i, long t, long begin, long end, T* sums) {
    for (long pair = p.first_pair[i]; pair < p.first_pair[i + 1]; ++pair) {
      const long j = p.tail[pair];
      const T *from = gradient(i), *value = at.state(j, t);
      const P* pre = p.pre + (pair * p.rows + at.offset[t]) * at.pre;
      P* to = grad_pre(pair, t);
      T* grad_tail = gradient(j);
      V grad_mixing[OPERATIONS] = {};
      for (long b = 0; b < p.sizes[t]; ++b)
        for (long f = begin; f < end; f += L) {
          const long here = b * at.hidden + f, gate_here = b * at.pre + f, value_here = gate_here + at.hidden;
          V grad_c, grad_z, grad_s;
          at.edges[pair].backward(load(from + here) * p.node_scale[i], load_as<T>(pre + gate_here), load_as<T>(pre + value_here),
                               load(value + here), grad_c, grad_z, grad_s, grad_mixing);
          store(to + gate_here, grad_c);
          store(to + value_here, grad_z);
          store(grad_tail + here, load(grad_tail + here) + grad_s);
        }
      if (at.edges[pair].mixed()) add(sums + pair * OPERATIONS, grad_mixing);
    }
  }

  // Passes the gradient through s_0 = h + σ(c) (tanh(z) - h).
  void start(long t, long begin, long end) {
    const Edge<T> edge(operation::tanh, nullptr);
    V unused[OPERATIONS];
    for (long b = 0; b < p.sizes[t]; ++b)
      for (long f = begin; f < end; f += L) {
        const long here = (at.offset[t] + b) * at.pre + f;
        V grad_c, grad_z, grad_h;
        edge.backward(load(gradient(0) + b * at.hidden + f), load_as<T>(p.pre_start + here),
                      load_as<T>(p.pre_start + here + at.hidden), load(at.carry(t) + b * at.hidden + f), grad_c, grad_z, grad_h,
                      unused);
        store(p.grad_pre_start + here, grad_c);
        store(p.grad_pre_start + here + at.hidden, grad_z);
        store(grad_carry.data() + b * at.hidden + f, grad_h);
      }
  }

  // Passes the gradient from the first pre-activations to h_{t-1}.
  void leave(long t, Part mine) {
    const P* from = p.grad_pre_start + at.offset[t] * at.pre;
    over_columns<T>(p.sizes[t], at.hidden, mine, [&](long panel, long row, long count, T* out) {
      multiply<T, P>(count, from + row * at.pre, at.pre, hidden.panel(panel), hidden.depth, out, false);
    }, [&](long b, long f, V value) {
      V grad_gated = masked(value, b, f), carry = load(grad_carry.data() + b * at.hidden + f);
      if (p.gated) grad_gated += carry;
      V total = grad_gated;
      if (p.hidden_scale) {
        const long here = (at.offset[t] + b) * at.hidden + f;
        store(p.grad_hidden_scale + here, grad_gated * load(at.before(t) + b * at.hidden + f));
        total = total * load(p.hidden_scale + here);
      }
      store(grad_hidden.data() + b * at.hidden + f, p.gated ? total : total + carry);
    });
  }

  // Passes the gradient from the first pre-activations to x_t, and to nodes and entries of the input gate.
  void run_gate(long t, Part mine, Team& team, T* sums) {
    const long rows = p.sizes[t], width = at.input, begin = mine.begin * 2 * L, end = std::min(mine.end * 2 * L, width);
    const P* from = p.grad_pre_start + at.offset[t] * at.pre;
    auto node = [&](long i) { return grad_node.data() + i * p.batch * width; };
    over_columns<T>(rows, width, mine, [&](long panel, long row, long count, T* out) {
      multiply<T, P>(count, from + row * at.pre, at.pre, input.panel(panel), input.depth, out, false);
    }, [&](long b, long f, V value) {
      const long here = (at.offset[t] + b) * width + f;
      store(p.grad_data + here, value * load(p.input_scale + here));
      V gate = {};
      for (long i = 0; i < p.history; ++i) gate += load(gate_state(i, t) + b * width + f);
      const V grad_gate = value * load(p.data + here) * form_slope(p.form, V(gate / T(p.history))) / T(p.history);
      for (long i = 0; i < p.history; ++i) store(node(i) + b * width + f, grad_gate);
    });
    for (long i = p.history - 1; i >= 0; --i) {
      const auto& heads = gate_pairs_from[i];
      if (!heads.empty()) {
        team.wait();
        over_columns<T>(rows, width, mine, [&](long panel, long row, long count, T* out) {
          for (std::size_t n = 0; n < heads.size(); ++n) {
            const P* grad_pre = p.grad_gate_pre + (heads[n] * p.rows + at.offset[t] + row) * width;
            const Weight<T, P>& weight = gate[gate_head[heads[n]]];
            multiply<T, P>(count, grad_pre, width, weight.panel(panel), weight.depth, out, n > 0);
          }
        }, [&](long b, long f, V value) {
          store(node(i) + b * width + f, load(node(i) + b * width + f) + value);
        });
      }
      for (long pair = p.gate_first[i]; pair < p.gate_first[i + 1]; ++pair) {
        V grad_mixing[OPERATIONS] = {};
        for (long b = 0; b < rows; ++b)
          for (long f = begin; f < end; f += L) {
            const long here = (pair * p.rows + at.offset[t] + b) * width + f;
            V pre = load_as<T>(p.gate_pre + here);
            store(p.grad_gate_pre + here, at.gate_edges[pair].mix_gradient(load(node(i) + b * width + f), pre, grad_mixing));
          }
        if (at.gate_edges[pair].mixed()) add(sums + pair * OPERATIONS, grad_mixing);
      }
      V grad_mixing[OPERATIONS] = {};
      for (long b = 0; b < rows; ++b)
        for (long f = begin; f < end; f += L) {
          const long here = ((at.slot(t - i) + b) * p.history + i) * width + f;
          V pre = load_as<T>(p.entered + here);
          store(p.grad_entered + here, at.entry_edges[i].mix_gradient(load(node(i) + b * width + f), pre, grad_mixing));
        }
      if (at.entry_edges[i].mixed()) add(sums + (p.gate_pairs + i) * OPERATIONS, grad_mixing);
    }
  }

  // Adds the gradient of one state through the entries of the input gate.
  void multiply_entries(long t, long rows, Part mine, T* to) {
    const long width = p.history * at.input;
    const P* from = p.grad_entered + at.slot(t) * width;
    over_columns<T>(rows, at.hidden, mine, [&](long panel, long row, long count, T* out) {
      multiply<T, P>(count, from + row * width, width, entry.panel(panel), entry.depth, out, false);
    }, [&](long b, long f, V value) {
      store(to + b * at.hidden + f, load(to + b * at.hidden + f) + masked(value, b, f));
    });
  }
};
