// The pieces of one kernel, run by its launcher and by whoever has a core for
// them.
#pragma once

namespace npu {

// Calls run(context, i) once for each i below `pieces`: on this thread, and on
// up to `width` - 1 others, each of which takes the next piece as it comes to
// it. Returns when all pieces have run. If some have thrown, it throws what one
// of them has. What a piece computes must not depend on the thread, and a piece
// must not call run_shared().
//
// While nobody launches, the others are the members of this thread's OpenMP
// team, which spin and begin at once. Beside a caller that launches they are
// helper threads, which all launchers share. Nobody waits for a helper that has
// not begun: where something else has the core, this thread runs all pieces. A
// team's members have to begin before the loop can end, and each of them may
// wait for a core that the caller has (bench/neighbour.py, case sac). A helper
// beside a team that spins would wait for it (case encoder).
void run_shared(int width, int pieces, void (*run)(void* context, int piece),
                void* context);

// Sets what each helper calls first. Set once, when the module is loaded.
void set_helper_start_hook(void (*hook)());

}  // namespace npu
