// The members of `Problem`, one MEMBER(type, name) each; Python is told of them by name. No guard: it is included twice.
MEMBER(std::int64_t, threads)
MEMBER(std::int64_t, steps)
MEMBER(std::int64_t, rows)
MEMBER(std::int64_t, batch)
MEMBER(std::int64_t, hidden_size)
MEMBER(std::int64_t, input_size)
MEMBER(std::int64_t, keep)
MEMBER(std::int64_t, states)
MEMBER(std::int64_t, pairs)
MEMBER(std::int64_t, levels)
MEMBER(std::int64_t, norm)  // of the states: 0 none, 1 by the batch, 2 by running statistics
MEMBER(std::int64_t, history)  // the input gate has `history` nodes; 0 for none
MEMBER(std::int64_t, form)  // of the input gate
MEMBER(std::int64_t, gate_pairs)
MEMBER(double, momentum)
MEMBER(double, epsilon)

MEMBER(const std::int64_t*, sizes)  // [steps]

// the cell: states in an order in which tails come before heads; pairs (tail, head) sorted by head
MEMBER(const std::int64_t*, level_start)  // [levels + 1]: which states each level has; the states of one read earlier levels
MEMBER(const std::int64_t*, first_pair)  // [states + 1]: the pairs into each state
MEMBER(const std::int64_t*, tail)  // [pairs]
MEMBER(const std::int64_t*, code)  // [pairs]: an operation, or mixed
MEMBER(const T*, scale)  // [states]: of the sum of the edges into a state
MEMBER(const T*, share_of_output)  // [states]
MEMBER(const T*, shares)  // [pairs, operations]
MEMBER(const T*, weight_hidden)  // [H, 2H]
MEMBER(const T* const*, weight_nodes)  // [states], [H, 2H] each; none for state 0
MEMBER(T*, running_mean)  // [Hp], or null
MEMBER(T*, running_variance)

MEMBER(const std::int64_t*, gate_first)  // [history + 1]
MEMBER(const std::int64_t*, gate_tail)  // [gate_pairs]
MEMBER(const std::int64_t*, gate_code)  // [gate_pairs]
MEMBER(const std::int64_t*, entry_code)  // [history]
MEMBER(const T*, gate_shares)  // [gate_pairs, operations]
MEMBER(const T*, entry_shares)  // [history, operations]
MEMBER(const T*, weight_input)  // [D, 2H]
MEMBER(const T*, weight_entry)  // [history, H, D]
MEMBER(const T*, weight_gate)  // [history, D, D]

// the sequence; null where there is none
MEMBER(const T*, projected)  // x W_x, [rows, 2 Hp], if there is no input gate
MEMBER(const T*, data)  // x, [rows, Dp], if there is one
MEMBER(const T*, hidden)  // [batch, Hp]
MEMBER(const T*, past)  // states before that one, latest first, [history - 1, batch, Hp]
MEMBER(const T*, mask)  // [batch, Hp]
MEMBER(const T*, factor)  // what the state gate multiplies h_{t-1} with, [rows, Hp]

// what comes out, and what the backward pass needs: `rows` is the batch where nothing is kept, as then each step
// overwrites the one before. `input_*` are what enters products: null where that is the state itself.
MEMBER(T*, output)  // [all rows, Hp]
MEMBER(T*, gated)  // h_{t-1} times factor, [rows, Hp], if s_0 keeps a part of that, else null
MEMBER(T*, state)  // [states, rows, Hp]
MEMBER(T*, deviation)  // 1 / standard deviation, [states, steps, Hp], with norm
MEMBER(P*, pre_start)  // [c_0 | z_0], [rows, 2 Hp]
MEMBER(P*, pre)  // [pairs, rows, 2 Hp]
MEMBER(P*, input_hidden)  // [rows, Hp]
MEMBER(P*, input_state)  // [states, rows, Hp]
MEMBER(P*, input_entry)  // past states, earliest first, then each h_{t-1}: [(history - 1) * batch + all rows, Hp]
MEMBER(P*, entered)  // their products, [(history - 1) * batch + all rows, history, Dp]
MEMBER(T*, gate_state)  // [history, rows, Dp]
MEMBER(P*, gate_input)  // [history, rows, Dp]
MEMBER(P*, gate_pre)  // [gate_pairs, rows, Dp]
MEMBER(T*, gate_factor)  // what multiplies x, [rows, Dp]
MEMBER(P*, input_data)  // [rows, Dp]

// the backward pass: gradients of what came out, and of what went in. Those of pre-activations may replace them.
MEMBER(const T*, of_output)  // [rows, Hp]
MEMBER(P*, of_pre_start)
MEMBER(P*, of_pre)
MEMBER(P*, of_entered)
MEMBER(P*, of_gate_pre)
MEMBER(T*, of_hidden)  // [batch, Hp]
MEMBER(T*, of_past)  // [history - 1, batch, Hp]
MEMBER(T*, of_data)  // [rows, Dp]
MEMBER(T*, of_factor)  // [rows, Hp]
MEMBER(T*, of_shares)  // [pairs, operations], or null
MEMBER(T*, of_gate_shares)
MEMBER(T*, of_entry_shares)
