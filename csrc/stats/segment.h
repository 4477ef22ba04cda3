// The statistics segment of this process: where it lives.
#pragma once

#include <initializer_list>
#include <string>

#include "csrc/stats/layout.h"

namespace npu {

// This process's segment, made at the first call: a file of mode 0600 in
// /dev/shm/npu_dispatch-<uid>/, or private memory where that cannot be had,
// with a line on stderr. Never on a disk. Never unmapped. What is written to it
// has its memory before, so that a full /dev/shm harms nobody. Lays
// aside the files that dead processes left (owner.h). A runtime_error where not
// even private memory can be had; the next call tries again.
Segment& segment();

// Its file, or "" when it has none.
const std::string& segment_path();

// Takes the next unused stream block; null when all are taken, or when there is
// no memory for it, which is said on stderr once and counted.
StreamBlock* claim_stream_block();

// Lets readers turn `name`, a kernel's, from RecentTask::name into text.
// `name` stays valid. Not for the hot path; once per name is enough.
void publish_name(const char* name);

// Publishes names that are fixed: a static object of the function that uses
// them, since the segment is not made before it is needed.
struct PublishedNames {
  PublishedNames(std::initializer_list<const char*> names) {
    for (const char* name : names) publish_name(name);
  }
};

// Memory behind the segment, in its file where it has one, made and given its
// first values by `fill` at the first call; of zeros. One use of it: the log of
// collectives. Any thread.
void* segment_extension(size_t bytes, void (*fill)(void*));

// Adds a sampled task that took `ns` to what `name` has cost. Any thread; does
// nothing for a name that was never published.
void count_name(const char* name, uint64_t ns);

// Adds a host wait to what the call site has cost. `reason`: OpenWait::reason.
// Any thread.
void count_wait_at(uint32_t site, uint64_t reason, uint64_t ns);

// Lets readers turn a call site's id into text. For ids not published before.
void publish_site(uint32_t id, const char* text);
// That text, which lives as long as the process; null where it is not known.
const char* site_text(uint32_t id);

// Removes the file. Called at exit, and by itself where nobody did.
void remove_segment();

// After fork, in the child: a segment of its own, without a file. Called by
// itself where nobody did.
void detach_segment_after_fork();

// Gives such a child's segment a file, where one can be had. Before the child's
// first stream is made: what another thread counts meanwhile may be lost.
void publish_segment_after_fork();

}  // namespace npu
