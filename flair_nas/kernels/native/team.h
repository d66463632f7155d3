// A team of threads that run the same steps, each on its own features, and wait for one another between them.
#pragma once
#include <atomic>
#include <thread>
#if defined(_OPENMP)
#include <omp.h>
#endif

class Team {
 public:
  explicit Team(int size) : size_(size) {}

  int size() const { return size_; }

  // Waits for the others. A stage takes microseconds, so waiting threads spin; but they let others run before long.
  void wait() {
    if (size_ == 1) return;
    unsigned phase = phase_.load(std::memory_order_acquire);
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == size_) {
      arrived_.store(0, std::memory_order_relaxed);
      phase_.store(phase + 1, std::memory_order_release);
      return;
    }
    for (int spins = 0; phase_.load(std::memory_order_acquire) == phase; ++spins)
      if (spins > 4000) std::this_thread::yield();
#if defined(__x86_64__)
      else
        __builtin_ia32_pause();
#endif
  }

 private:
  int size_;
  alignas(64) std::atomic<int> arrived_{0};
  alignas(64) std::atomic<unsigned> phase_{0};
};

// The part of `count` things that is thread `id`'s.
struct Part {
  long begin, end;
  Part(long count, int id, int size) : begin(count * id / size), end(count * (id + 1) / size) {}
};

// Calls work(team, id) in as many threads as it can have, at most `wanted`.
template <class Work>
void in_team(long wanted, Work work) {
#if defined(_OPENMP)
  if (wanted > 1 && !omp_in_parallel()) {
    Team* team = nullptr;
#pragma omp parallel num_threads(static_cast <int>(wanted))
    {
#pragma omp single
      team = new Team(omp_get_num_threads());
      work(*team, omp_get_thread_num());
    }
    delete team;
    return;
  }
#endif
  Team alone(1);
  work(alone, 0);
}
