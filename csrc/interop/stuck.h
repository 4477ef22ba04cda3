// Finds out whether a stream can go on without the host.
#pragma once

namespace npu {

class Stream;

// The stream that holds up this one for ever, as far as this process knows;
// null where it can go on. That is this stream, or one that it waits for, which
// waits for a flag (an external or interprocess event) that no queued task of
// this process sets; or one of several streams that wait for each other. It
// looks without locks: only two equal answers, one after another, are reliable.
const Stream* held_by_nobody(const Stream& stream);

// Whether that stream waits for an event that another process may record.
bool waits_for_processes(const Stream& stream);

}  // namespace npu
