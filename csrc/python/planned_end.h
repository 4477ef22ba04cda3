// The times of events while a program is recorded for a plan.
#pragma once

#include <cstdint>
#include <optional>

namespace npu {

class Event;

// When the device that is planned for reaches the event; nothing where no
// program is recorded. Needs the GIL.
std::optional<uint64_t> planned_end(const Event& event);

}  // namespace npu
