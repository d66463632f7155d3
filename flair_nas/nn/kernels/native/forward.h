// The forward pass. Each thread computes its own features of every vector; threads synchronise before a product, which
// reads all features of a vector.
#pragma once
#include "problem.h"

template <class T, class P>
class Forward {
  using V = Vector<T>;
  static constexpr long L = LANES<T>;

 public:
  explicit Forward(const Problem<T, P>& problem)
      : p(problem),
        at(problem),
        hidden_panels(blocks(p.hidden_size, L)),
        input_panels(blocks(p.input_size, 2 * L)),
        packed(packed_size() * sizeof(P)) {
    P* next = static_cast<P*>(packed.data());
    auto take = [&](Weight<T, P>& weight, long depth, long panels) {
      weight.packed = next;
      weight.depth = deep<P>(depth);
      next += weight.depth * panels * 2 * L;
    };
    take(hidden, p.hidden_size, hidden_panels);
    nodes.resize(p.states);
    for (long i = 1; i < p.states; ++i) take(nodes[i], p.hidden_size, hidden_panels);
    if (p.history) take(input, p.input_size, hidden_panels);
    entry.resize(p.history);
    gate.resize(p.history);
    for (auto& weight : entry) take(weight, p.hidden_size, input_panels);
    for (auto& weight : gate) take(weight, p.input_size, input_panels);
  }

  void run() {
    in_team(std::min<long>(p.threads, hidden_panels), false, [this](Team& team, int id) { run(team, id); });
  }

 private:
  const Problem<T, P>& p;
  const Layout<T, P> at;
  const long hidden_panels, input_panels;
  Packed packed;
  Weight<T, P> hidden, input;
  std::vector<Weight<T, P>> nodes, entry, gate;

  long packed_size() const {
    long cell_depth = p.states * deep<P>(p.hidden_size) + (p.history ? deep<P>(p.input_size) : 0);
    long gate_depth = p.history * (deep<P>(p.hidden_size) + deep<P>(p.input_size));
    return (cell_depth * hidden_panels + gate_depth * input_panels) * 2 * L;
  }

  // --- weights ---

  // Packs [gate | candidate] columns of the same features side by side.
  void pack_pairs(const Weight<T, P>& weight, const T* from, long depth, Part panels) {
    const long size = p.hidden_size;
    for (long panel = panels.begin; panel < panels.end; ++panel)
      for (long side = 0; side < 2; ++side)
        pack_rows(weight.panel(panel), side, from + side * size + panel * L, 2 * size, depth, size - panel * L);
  }

  void pack_columns(const Weight<T, P>& weight, const T* from, long depth, Part panels) {
    const long size = p.input_size;
    for (long half = panels.begin * 2; half < panels.end * 2; ++half)
      pack_rows(weight.panel(half / 2), half % 2, from + half * L, size, depth, size - half * L);
  }

  // --- positions ---

  const P* product_input(long i, long t) const {
    return p.input_state ? p.input_state + (i * at.stored + at.base(t)) * at.hidden
                         : reinterpret_cast<const P*>(at.state(i, t));
  }
  T* gate_state(long i, long t) const { return p.gate_state + (i * at.stored + at.base(t)) * at.input; }
  const P* gate_input(long i, long t) const {
    return p.gate_input ? p.gate_input + (i * at.stored + at.base(t)) * at.input
                        : reinterpret_cast<const P*>(gate_state(i, t));
  }

  // --- the steps ---

  void run(Team& team, int id) {
    const Part mine(hidden_panels, id, team.size()), mine_input(input_panels, id, team.size());
    pack_pairs(hidden, p.weight_hidden, p.hidden_size, mine);
    for (long i = 1; i < p.states; ++i) pack_pairs(nodes[i], p.weight_nodes[i], p.hidden_size, mine);
    if (p.history) pack_pairs(input, p.weight_input, p.input_size, mine);
    for (long i = 0; i < p.history; ++i) {
      pack_columns(entry[i], p.weight_entry + i * p.hidden_size * p.input_size, p.hidden_size, mine_input);
      pack_columns(gate[i], p.weight_gate + i * p.input_size * p.input_size, p.input_size, mine_input);
    }
    for (long t = 1 - p.history; t < 0; ++t)
      enter(t, p.past + (-1 - t) * p.batch * at.hidden, p.batch, mine);
    prepare(0, mine);
    team.wait();
    for (long t = 1 - p.history; t < 0; ++t) multiply_entries(t, p.batch, mine_input);
    for (long t = 0; t < p.steps; ++t) {
      if (p.history) {
        multiply_entries(t, p.sizes[t], mine_input);
        run_gate(t, mine_input, team);
        team.wait();
      }
      start(t, mine);
      for (long level = 1; level < p.levels; ++level) {
        team.wait();
        for (long i = p.level_start[level]; i < p.level_start[level + 1]; ++i) run_node(i, t, mine);
      }
      finish(t, mine);
      if (t + 1 < p.steps) {
        prepare(t + 1, mine);
        team.wait();
      }
    }
  }

  // Stores h_{t-1} as it enters products.
  void prepare(long t, Part mine) {
    const T* from = at.before(t);
    const long width = at.hidden;
    for (long b = 0; b < p.sizes[t]; ++b)
      for (long f = mine.begin * L; f < mine.end * L; f += L) {
        V value = load(from + b * width + f);
        if (p.hidden_scale) {
          value = value * load(p.hidden_scale + (at.offset[t] + b) * width + f);
          if (p.gated) store(p.gated + (at.base(t) + b) * width + f, value);
        }
        if (p.mask) value = value * load(p.mask + b * width + f);
        store(p.input_hidden + (at.base(t) + b) * width + f, value);
      }
    if (p.history) enter(t, from, p.sizes[t], mine);
  }

  void enter(long t, const T* from, long rows, Part mine) {
    for (long b = 0; b < rows; ++b)
      for (long f = mine.begin * L; f < mine.end * L; f += L) {
        V value = load(from + b * at.hidden + f);
        if (p.mask) value = value * load(p.mask + b * at.hidden + f);
        store(p.input_entry + (at.slot(t) + b) * at.hidden + f, value);
      }
  }

  // Multiplies one state with all entry matrices of the input gate.
  void multiply_entries(long t, long rows, Part mine) {
    const P* from = p.input_entry + at.slot(t) * at.hidden;
    for (long i = 0; i < p.history; ++i)
      over_columns<T>(rows, at.input, mine, [&](long panel, long row, long count, T* out) {
        multiply<T, P>(count, from + row * at.hidden, at.hidden, entry[i].panel(panel), entry[i].depth, out, false);
      }, [&](long b, long f, V value) {
        store(p.entered + ((at.slot(t) + b) * p.history + i) * at.input + f, value);
      });
  }

  // Computes the input gate (ESS eq. 6) and x̂_t.
  void run_gate(long t, Part mine, Team& team) {
    const long rows = p.sizes[t];
    for (long i = 0; i < p.history; ++i) {
      const P* entered = p.entered + (at.slot(t - i) * p.history + i) * at.input;
      T* to = gate_state(i, t);
      auto keep = [&](long b, long f, V value) {
        store(to + b * at.input + f, value);
        if (p.gate_input) store(p.gate_input + (i * at.stored + at.base(t) + b) * at.input + f, value);
      };
      const long first = p.gate_first[i], last = p.gate_first[i + 1];
      for (long b = 0; b < rows; ++b)
        for (long f = mine.begin * 2 * L; f < std::min(mine.end * 2 * L, at.input); f += L)
          keep(b, f, at.entry_edges[i].mix(load_as<T>(entered + b * p.history * at.input + f)));
      if (first < last) team.wait();
      for (long pair = first; pair < last; ++pair) {
        const P* from = gate_input(p.gate_tail[pair], t);
        P* pre = p.gate_pre + (pair * at.stored + at.base(t)) * at.input;
        over_columns<T>(rows, at.input, mine, [&](long panel, long row, long count, T* out) {
          multiply<T, P>(count, from + row * at.input, at.input, gate[i].panel(panel), gate[i].depth, out, false);
        }, [&](long b, long f, V value) {
          if (p.keep) store(pre + b * at.input + f, value);
          keep(b, f, load(to + b * at.input + f) + at.gate_edges[pair].mix(value));
        });
      }
    }
    for (long b = 0; b < rows; ++b)
      for (long f = mine.begin * 2 * L; f < std::min(mine.end * 2 * L, at.input); f += L) {
        V total = {};
        for (long i = 0; i < p.history; ++i) total += load(gate_state(i, t) + b * at.input + f);
        V scale = form_scale(p.form, V(total / T(p.history)));
        store(p.input_scale + (at.base(t) + b) * at.input + f, scale);
        V value = scale * load(p.data + (at.offset[t] + b) * at.input + f);
        store(p.input_data + (at.base(t) + b) * at.input + f, value);
      }
  }

  // Computes s_0 = h + σ(c) (tanh(z) - h).
  void start(long t, Part mine) {
    const P* from = p.input_hidden + at.base(t) * at.hidden;
    const P* data = p.history ? p.input_data + at.base(t) * at.input : nullptr;
    T out[TILE_ROWS * 2 * L];
    for (long panel = mine.begin; panel < mine.end; ++panel) {
      const long f = panel * L;
      for_row_blocks(p.sizes[t], [&](long row, long count) {
        multiply<T, P>(count, from + row * at.hidden, at.hidden, hidden.panel(panel), hidden.depth, out, false);
        if (data) multiply<T, P>(count, data + row * at.input, at.input, input.panel(panel), input.depth, out, true);
        for (long b = 0; b < count; ++b) {
          V c = load(out + b * 2 * L), z = load(out + b * 2 * L + L);
          if (p.projected) {
            const T* more = p.projected + (at.offset[t] + row + b) * at.pre + f;
            c += load(more);
            z += load(more + at.hidden);
          }
          if (p.keep) {
            P* pre = p.pre_start + (at.offset[t] + row + b) * at.pre + f;
            store(pre, c);
            store(pre + at.hidden, z);
          }
          V h = load(at.carry(t) + (row + b) * at.hidden + f);
          store(at.state(0, t) + (row + b) * at.hidden + f, h + sigmoid(c) * (hyperbolic(z) - h));
        }
      });
      complete(0, t, f);
    }
  }

  // Computes s_i, the sum over its edges.
  void run_node(long i, long t, Part mine) {
    T out[TILE_ROWS * 2 * L];
    V total[TILE_ROWS];
    for (long panel = mine.begin; panel < mine.end; ++panel) {
      const long f = panel * L;
      for_row_blocks(p.sizes[t], [&](long row, long count) {
        for (long b = 0; b < count; ++b) total[b] = V{};
        for (long pair = p.first_pair[i]; pair < p.first_pair[i + 1]; ++pair) {
          const long j = p.tail[pair];
          multiply<T, P>(count, product_input(j, t) + row * at.hidden, at.hidden, nodes[i].panel(panel), nodes[i].depth, out,
                         false);
          for (long b = 0; b < count; ++b) {
            V c = load(out + b * 2 * L), z = load(out + b * 2 * L + L);
            if (p.keep) {
              P* pre = p.pre + (pair * at.stored + at.base(t) + row + b) * at.pre + f;
              store(pre, c);
              store(pre + at.hidden, z);
            }
            total[b] += at.edges[pair].forward(c, z, load(at.state(j, t) + (row + b) * at.hidden + f));
          }
        }
        for (long b = 0; b < count; ++b) store(at.state(i, t) + (row + b) * at.hidden + f, total[b] * p.node_scale[i]);
      });
      complete(i, t, f);
    }
  }

  // Normalises some features of a state over the batch, and stores them as they enter products.
  void complete(long i, long t, long f) {
    const long rows = p.sizes[t];
    T* values = at.state(i, t) + f;
    if (p.norm) {
      V mean = {}, variance = {}, inverse = {};
      if (p.norm == 1) {
        for (long b = 0; b < rows; ++b) mean += load(values + b * at.hidden);
        mean /= T(rows);
        for (long b = 0; b < rows; ++b) {
          V distance = load(values + b * at.hidden) - mean;
          variance += distance * distance;
        }
        variance /= T(rows);
        if (p.running_mean) {
          const T part = T(p.momentum), unbiased = T(rows) / T(rows - 1);
          store(p.running_mean + f, load(p.running_mean + f) * (1 - part) + mean * part);
          store(p.running_variance + f, load(p.running_variance + f) * (1 - part) + variance * (part * unbiased));
        }
      } else {
        mean = load(p.running_mean + f);
        variance = load(p.running_variance + f);
      }
      for (long lane = 0; lane < std::min(L, p.hidden_size - f); ++lane)  // padding must not grow
        inverse[lane] = 1 / std::sqrt(variance[lane] + T(p.epsilon)) + variance[lane] * 0;  // NaN if that overflows
      if (p.keep) store(p.deviation + (i * p.steps + t) * at.hidden + f, inverse);
      for (long b = 0; b < rows; ++b) store(values + b * at.hidden, (load(values + b * at.hidden) - mean) * inverse);
    }
    if (p.input_state)
      for (long b = 0; b < rows; ++b) {
        V value = load(values + b * at.hidden);
        if (p.mask) value = value * load(p.mask + b * at.hidden + f);
        store(p.input_state + (i * at.stored + at.base(t) + b) * at.hidden + f, value);
      }
  }

  // Computes h_t, the mean of the output nodes.
  void finish(long t, Part mine) {
    for (long b = 0; b < p.sizes[t]; ++b)
      for (long f = mine.begin * L; f < mine.end * L; f += L) {
        V total = {};
        for (long i = 0; i < p.states; ++i)
          if (p.output_weight[i] != 0) total += p.output_weight[i] * load(at.state(i, t) + b * at.hidden + f);
        for (long lane = p.hidden_size - f; lane < L; ++lane) total[lane] = 0;  // padding must not grow
        store(p.output + (at.offset[t] + b) * at.hidden + f, total);
      }
  }
};
