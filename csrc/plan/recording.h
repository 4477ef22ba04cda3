// What a program did: the recorder writes it, and the simulation reads it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "csrc/driver/emulated/work.h"

namespace npu::plan {

enum class Act : uint32_t {
  kLaunch,      // `stream` was given a task: operation `what`
  kStreamWait,  // `stream` was given a wait for a task of `other`
  kHostWait,    // the host waited for a task of `other`; `what` is the reason
  kPass,        // `amount` ns passed on the host, in which it did nothing
  kStep,        // a step ended
};

// Plain data, so that a recording can be kept and looked at in bulk: Python
// reads and writes these through numpy (npu_dispatch/plan/simulate.py).
struct Entry {
  Act act;
  uint32_t stream;
  uint32_t other;
  uint32_t what;
  uint32_t site;    // the call stack; 0: not known
  uint32_t thread;  // from 0, in the order of their first entries
  // Of a wait: how many tasks `other` has been given after the one that is
  // waited for. Of kPass: ns.
  uint64_t amount;
  // CPU time of the host since the thread's entry before this one.
  uint64_t host_ns;
};
static_assert(sizeof(Entry) == 40);

// What a task does, beside the work that the emulated driver knows.
enum class OperationType : uint32_t {
  kWork,        // `work` says how much
  kNone,        // takes no time of the device
  kReplay,      // the operations `parts`, one after another
  kCollective,  // takes what the network takes
};

// Tasks of one name, shapes and amount of work are one operation.
struct Operation {
  OperationType type = OperationType::kNone;
  std::string name;
  TaskWork work;
  std::vector<std::vector<int64_t>> shapes;  // of its tensors, inputs first
  std::vector<uint32_t> parts;
  // Of a collective: which, and the ranks that take part.
  std::string kind;
  std::vector<int64_t> ranks;
};

struct PlanStream {
  int device;
  int64_t id;
  int priority;
};

// When the program had so many bytes for the first time, and where.
struct Peak {
  int device;
  uint64_t bytes;
  uint32_t site;
};

struct Recording {
  std::vector<PlanStream> streams;
  std::vector<Operation> operations;
  std::vector<Entry> entries;
  std::vector<Peak> peaks;  // of each device, growing
};

}  // namespace npu::plan
