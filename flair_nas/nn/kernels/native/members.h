// The members of `Problem`, one MEMBER(type, name) each, which Python reads by name. No guard: it is included twice.
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
MEMBER(std::int64_t, norm)  // normalisation of the states: 0 none, 1 by the batch, 2 by running statistics
MEMBER(std::int64_t, history)  // number of nodes of the input gate, or 0
MEMBER(std::int64_t, form)  // form of the input gate
MEMBER(std::int64_t, gate_pairs)
MEMBER(double, momentum)
MEMBER(double, epsilon)

MEMBER(const std::int64_t*, sizes)  // [steps]

// the cell: states in an order in which tails come before heads; pairs (tail, head) ordered by head
MEMBER(const std::int64_t*, level_start)  // [levels + 1]: the first state of each level; levels read earlier levels alone
MEMBER(const std::int64_t*, first_pair)  // [states + 1]: the first pair into each state
MEMBER(const std::int64_t*, tail)  // [pairs]
MEMBER(const std::int64_t*, code)  // [pairs]: an operation or mixed
MEMBER(const T*, node_scale)  // [states]: scale of the sum of the edges into a state
MEMBER(const T*, output_weight)  // [states]: weight of a state in h_t
MEMBER(const T*, mixing)  // [pairs, operations]
MEMBER(const T*, weight_hidden)  // [H, 2H]
MEMBER(const T* const*, weight_nodes)  // [states], [H, 2H] each; null for state 0
MEMBER(T*, running_mean)  // [Hp], or null
MEMBER(T*, running_variance)

MEMBER(const std::int64_t*, gate_first)  // [history + 1]
MEMBER(const std::int64_t*, gate_tail)  // [gate_pairs]
MEMBER(const std::int64_t*, gate_code)  // [gate_pairs]
MEMBER(const std::int64_t*, entry_code)  // [history]
MEMBER(const T*, gate_mixing)  // [gate_pairs, operations]
MEMBER(const T*, entry_mixing)  // [history, operations]
MEMBER(const T*, weight_input)  // [D, 2H]
MEMBER(const T*, weight_entry)  // [history, H, D]
MEMBER(const T*, weight_gate)  // [history, D, D]

// the sequence; null if absent
MEMBER(const T*, projected)  // x W_x, [rows, 2 Hp], without an input gate
MEMBER(const T*, data)  // x, [rows, Dp], with an input gate
MEMBER(const T*, hidden)  // [batch, Hp]
MEMBER(const T*, past)  // states before `hidden`, latest first, [history - 1, batch, Hp]
MEMBER(const T*, mask)  // [batch, Hp]
MEMBER(const T*, hidden_scale)  // scale of the state gate for h_{t-1}, [rows, Hp]

// the output, and tensors for the backward pass. Without `keep`, their `rows` are those of the batch, and each step
// overwrites the last. `input_*` enter products; null if the state itself does.
MEMBER(T*, output)  // [all rows, Hp]
MEMBER(T*, gated)  // ĥ_{t-1}, [rows, Hp], if s_0 carries it, else null
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
MEMBER(T*, input_scale)  // scale of the input gate for x, [rows, Dp]
MEMBER(P*, input_data)  // [rows, Dp]

// the backward pass: gradients of the members of these names; those of pre-activations may overwrite them
MEMBER(const T*, grad_output)  // [rows, Hp]
MEMBER(P*, grad_pre_start)
MEMBER(P*, grad_pre)
MEMBER(P*, grad_entered)
MEMBER(P*, grad_gate_pre)
MEMBER(T*, grad_hidden)  // [batch, Hp]
MEMBER(T*, grad_past)  // [history - 1, batch, Hp]
MEMBER(T*, grad_data)  // [rows, Dp]
MEMBER(T*, grad_hidden_scale)  // [rows, Hp]
MEMBER(T*, grad_mixing)  // [pairs, operations], or null
MEMBER(T*, grad_gate_mixing)
MEMBER(T*, grad_entry_mixing)
