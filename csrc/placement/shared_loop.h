// The pieces of one kernel, run by its launcher and by whoever has a core for
// them.
#pragma once

#include <cstdint>

namespace npu {

class Helper;

// Calls run(context, i) once for each i below `pieces`: on this thread, and on
// up to `width` - 1 others, each of which takes the next piece as it comes to
// it. Returns when all pieces have run. If some have thrown, it throws what one
// of them has. What a piece computes must not depend on the thread, and a piece
// must not call run_shared().
//
// The others are threads that wait for a device, which have a core and nothing
// to do, then helper threads, which all launchers share. Nobody waits for one
// that has not begun: where something else has the core, this thread runs all
// pieces. One that sleeps is only woken where it `wakes`. When nobody has
// launched for a while, they are the members of this thread's OpenMP team:
// these have to begin before the loop can end, and each of them may wait for a
// core that the caller has (bench/neighbour.py, case sac), but they spin then,
// and a helper beside them would wait for a core (case encoder).
void run_shared(int width, int pieces, void (*run)(void* context, int piece),
                void* context, bool wakes = true);

// Exists while a thread waits for a device, and helps meanwhile.
class WaitingHelper {
 public:
  WaitingHelper();
  ~WaitingHelper();
  WaitingHelper(const WaitingHelper&) = delete;

  // Runs pieces, if any launcher has offered some.
  bool help();

 private:
  Helper* place_;  // null: enough others wait
};

// Whether a kernel has had pieces lately.
bool helpers_are_wanted(uint64_t now);

}  // namespace npu
