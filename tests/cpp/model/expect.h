// Explores programs, and checks what is found in them.
#pragma once

#include <stdio.h>

#include <initializer_list>

#include "tests/cpp/check.h"
#include "tests/cpp/model/model.h"

namespace npu::model {

using enum Operation;
using enum Effect;

inline constexpr auto kRelaxed = std::memory_order_relaxed;
inline constexpr auto kAcquire = std::memory_order_acquire;
inline constexpr auto kRelease = std::memory_order_release;

inline constexpr Mutant kNoFence{kFenceLabel, kFence, kSkip};

// Explores Tested(args...).
template <typename Tested, typename... Args>
Outcome explored(const Limits& limits, const Mutant& mutant, Fences fences,
                 const Args&... args) {
  return explore(limits, mutant, fences,
                 [&] { return std::make_unique<Tested>(args...); });
}

inline void report(const char* name, const Outcome& outcome) {
  printf("       %s: %llu executions%s%s\n", name,
         static_cast<unsigned long long>(outcome.executions),
         outcome.violation.empty() ? "" : ": ", outcome.violation.c_str());
}

template <typename Tested, typename... Args>
void expect_correct(const char* name, const Limits& limits, Fences fences,
                    const Args&... args) {
  const Outcome outcome = explored<Tested>(limits, Mutant{}, fences, args...);
  report(name, outcome);
  if (!outcome.violation.empty()) check::fail(name, 0, outcome.violation);
}

// The same, with membarrier.
template <typename Tested, typename... Args>
void expect_correct(const char* name, const Limits& limits,
                    const Args&... args) {
  expect_correct<Tested>(name, limits, Fences::kAsymmetric, args...);
}

inline void expect_found(const char* name, const Outcome& outcome) {
  report(name, outcome);
  if (outcome.violation.empty())
    check::fail(name, 0, "a planted bug is not found");
}

// A bug that is planted in the tested code.
struct Planted {
  const char* name;
  Mutant mutant;
};

template <typename Tested, typename... Args>
void expect_each_found(const Limits& limits,
                       std::initializer_list<Planted> bugs,
                       const Args&... args) {
  for (const Planted& bug : bugs)
    expect_found(bug.name, explored<Tested>(limits, bug.mutant,
                                            Fences::kAsymmetric, args...));
}

}  // namespace npu::model
