// A team of threads that run the same steps, each on its own features, and synchronise between steps.
#pragma once
#include <atomic>
#include <cstdint>
#include <ctime>
#include <thread>
#if defined(_OPENMP)
#include <omp.h>
#endif
#if defined(__linux__)
#include <climits>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

class Team {
 public:
  explicit Team(int size) : size_(size) {}

  int size() const { return size_; }

  // Waits for the other threads. A step takes microseconds, so threads spin first, then sleep until they are woken. They
  // do not yield: on a busy machine that would lose the processor for milliseconds at every step.
  void wait() {
    if (size_ == 1) return;
    std::uint32_t phase = phase_.load(std::memory_order_acquire);
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == size_) {
      arrived_.store(0, std::memory_order_relaxed);
      phase_.store(phase + 1);  // sequentially consistent, so a sleeper sees the phase or is seen here
      if (sleepers_.load() != 0) wake();
      return;
    }
    for (int spins = 0; spins < 500; ++spins) {
      if (phase_.load(std::memory_order_acquire) != phase) return;
#if defined(__x86_64__)
      __builtin_ia32_pause();
#endif
    }
    sleepers_.fetch_add(1);
    while (phase_.load() == phase) sleep(phase);
    sleepers_.fetch_sub(1);
  }

 private:
#if defined(__linux__)
  void sleep(std::uint32_t phase) { syscall(SYS_futex, &phase_, FUTEX_WAIT_PRIVATE, phase, nullptr, nullptr, 0); }
  void wake() { syscall(SYS_futex, &phase_, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0); }
#else
  void sleep(std::uint32_t) { std::this_thread::yield(); }
  void wake() {}
#endif

  int size_;
  alignas(64) std::atomic<int> arrived_{0};
  alignas(64) std::atomic<std::uint32_t> phase_{0};
  std::atomic<int> sleepers_{0};
};
static_assert(sizeof(std::atomic<std::uint32_t>) == sizeof(std::uint32_t), "a futex is a plain word");

// The part of `count` items that thread `id` of `size` processes.
struct Part {
  long begin, end;
  Part(long count, int id, int size) : begin(count * id / size), end(count * (id + 1) / size) {}
};

// The time of a clock, in seconds.
inline double seconds(clockid_t clock) {
  timespec now;
  clock_gettime(clock, &now);
  return now.tv_sec + 1e-9 * now.tv_nsec;
}

// Decides if a team is faster than one thread. On a busy machine its threads mostly wait for one that is not running; then
// one thread runs alone, and a team is tried again later.
class Benefit {
 public:
  bool expected() const { return seconds(CLOCK_MONOTONIC) >= alone_until_.load(std::memory_order_relaxed); }

  // Takes the elapsed time of a team's call and the processor time of its threads; one slow call alone has no effect.
  void judge(double elapsed, double worked) {
    const bool poor = 2 * worked < elapsed;  // less than a single thread would get
    if (poor && poor_.exchange(true, std::memory_order_relaxed)) alone_until_ = seconds(CLOCK_MONOTONIC) + 16 * elapsed;
    if (!poor) poor_.store(false, std::memory_order_relaxed);
  }

 private:
  std::atomic<double> alone_until_{0};
  std::atomic<bool> poor_{false};
};

// Calls work(team, id) in up to `threads` threads, or in one if a team is slower, unless `always`.
template <class Work>
void in_team(long threads, bool always, Work work) {
#if defined(_OPENMP)
  static Benefit benefit;  // of this kind of work
  if (threads > 1 && !omp_in_parallel() && (always || benefit.expected())) {
    const double begin = seconds(CLOCK_MONOTONIC);
    std::atomic<double> worked{0};
    Team* team = nullptr;
#pragma omp parallel num_threads(static_cast <int>(threads))
    {
#pragma omp single
      team = new Team(omp_get_num_threads());
      const double before = seconds(CLOCK_THREAD_CPUTIME_ID);
      work(*team, omp_get_thread_num());
      const double used = seconds(CLOCK_THREAD_CPUTIME_ID) - before;
      for (double sum = worked.load(); !worked.compare_exchange_weak(sum, sum + used);) {
      }
    }
    delete team;
    benefit.judge(seconds(CLOCK_MONOTONIC) - begin, worked);
    return;
  }
#endif
  Team alone(1);
  work(alone, 0);
}
