// Whether a stream can get on without the host.
#pragma once

namespace npu {

class Stream;

// The stream whose wait for a flag (an external or interprocess event) holds
// this one, itself or one that it waits for, where no task that is queued in
// this process sets the flag; or one of several that wait for each other. Null:
// it gets on. A look without locks: what is so twice is so.
const Stream* held_by_nobody(const Stream& stream);

// Whether that stream waits for an event that another process may record.
bool waits_for_processes(const Stream& stream);

}  // namespace npu
