// Makes and finds the statistics segment of this process.
#pragma once

#include <initializer_list>
#include <string>

#include "csrc/stats/layout.h"
#include "csrc/stats/owner.h"

namespace npu {

// This process's segment, made at the first call: a file of mode 0600 in the
// folder "npu_dispatch" (owner.h), or, with a line on stderr, private
// memory where there can be no such file. It is never on a disk and never
// unmapped. Its memory is taken before anybody writes to it, so that a full
// /dev/shm harms nobody. The first call also renames the files that dead
// processes left (owner.h). Throws a runtime_error where there is not even
// private memory; the next call tries again.
Segment& segment();

// Says which versions the header is to name. Called before the segment is made;
// the texts live as long as the process.
void name_versions(const char* version, const char* torch_version);

// Its file, or "" when it has none.
const std::string& segment_path();

// Takes the next unused stream block. Null when all are taken or there is no
// memory for it, which is reported on stderr once and counted.
StreamBlock* claim_stream_block();

// Lets readers turn a kernel's name in RecentTask::name into text. `name` must
// stay valid. Not for the hot path; once per name is enough.
void publish_name(const char* name);

// Publishes fixed names. To be a static object in the function that uses the
// names, since the segment is not to be made before it is needed.
struct PublishedNames {
  PublishedNames(std::initializer_list<const char*> names) {
    for (const char* name : names) publish_name(name);
  }
};

// Memory behind the segment, in its file where it has one. The first call makes
// it, of zeros, and `fill` gives it its first values. It has one user, the log
// of collectives. Any thread.
void* segment_extension(size_t bytes, void (*fill)(void*));

// Adds a sampled task that took `ns` to what `name` has cost. Any thread; does
// nothing for a name that was never published.
void count_name(const char* name, uint64_t ns);

// Adds a host wait to what the call site has cost. `reason`: OpenWait::reason.
// Any thread.
void count_wait_at(uint32_t site, uint64_t reason, uint64_t ns);

// Adds a sampled task that took `ns` to what the call site has cost. Any
// thread.
void count_task_at(uint32_t site, uint64_t ns);

// Lets readers turn a call site's id into text. Only for an id that has not
// been published before.
void publish_site(uint32_t id, const char* text);
// That text, which lives as long as the process; null where it is not known.
const char* site_text(uint32_t id);

// Lists the calling thread's wait in the segment until end(). Where all
// kMaxOpenWaits places are taken, the wait is not listed, only counted.
class ListedWait {
 public:
  // `reason`, `until` and `now` are OpenWait's `reason`, `until` and `since`.
  ListedWait(uint64_t reason, uint32_t site, int device, int64_t stream,
             uint64_t until, uint64_t now);
  ~ListedWait() { end(); }
  ListedWait(const ListedWait&) = delete;
  // A second call does nothing.
  void end();

 private:
  OpenWait* place_;  // null: no place, or ended
};

// The process that a segment's file belongs to: see ReadOwner.
bool read_segment_owner(int file, Owner& owner);

// Removes the file. Called at exit.
void remove_segment();

// Gives a forked child a segment of its own, without a file. Runs in the child
// by itself; a second call does nothing. The child's first stream gives it a
// file, if possible: counts that another thread adds meanwhile may be lost.
void detach_segment_after_fork();

}  // namespace npu
