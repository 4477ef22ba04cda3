// What helpers do, and launchers with them: the same as placement/shared_loop
// does.
#include "csrc/placement/tuning.h"
#include "tests/cpp/placement/simulation_parts.h"

namespace npu::sim {

bool Launcher::take_piece(World& world, int& ran) {
  const Load& load = world.load;
  if (begun == load.pieces || (load.pieces_are_owned && ran)) return false;
  ++begun;
  ++ran;
  return true;
}

bool Launcher::run_pieces(World& world, uint64_t& turn) {
  const Load& load = world.load;
  if (state == kAwaitsHelper) state = kWorks;
  if (!begun) {
    ran = 0;
    for (const auto& helper : process.helpers)
      if (!helper->loop) helper->offer(world, *this);
  }
  for (;;) {
    if (!left_ns && take_piece(world, ran))
      left_ns = load.task_ns / uint64_t(load.pieces);
    if (left_ns > turn) {
      left_ns -= turn;
      return false;
    }
    if (left_ns) {
      turn -= left_ns;
      left_ns = 0;
      continue;
    }
    bool out = false;
    for (const auto& helper : process.helpers) {
      if (helper->loop != this) continue;
      if (!helper->taken && !load.pieces_are_owned)
        helper->loop = nullptr;
      else
        out = true;
    }
    if (!out) {
      begun = 0;
      awaits_from = 0;
      return true;
    }
    if (!awaits_from) awaits_from = world.now;
    if (world.now - awaits_from < tuning::kHelperWaitSpinNs) return false;
    state = kAwaitsHelper;
    loan.begin(allowed);
    world.sleep(*this, UINT64_MAX);
    return false;
  }
}

void Launcher::helper_left(World& world, int from) {
  if (state != kAwaitsHelper) return;
  if (loan.narrow(allowed, from)) allowed = loan.set();
  world.place_woken(*this, from);
  if (loan.end(allowed)) allowed = loan.owners();
}

void Helper::offer(World& world, Launcher& launcher) {
  loop = &launcher;
  ran = 0;
  if (runnable) return;
  loan.begin(allowed);
  if (loan.narrow(allowed, launcher.cpu)) allowed = loan.set();
  world.place_woken(*this, launcher.cpu);
  if (loan.end(allowed)) allowed = loan.owners();
}

void Helper::turn(World& world) {
  uint64_t turn = kTurnNs;
  taken = taken || loop;
  while (taken) {
    if (!left_ns && !loop->take_piece(world, ran)) {
      leave(world);
      break;
    }
    if (!left_ns) left_ns = world.load.task_ns / uint64_t(world.load.pieces);
    if (left_ns > turn) {
      left_ns -= turn;
      return;
    }
    turn -= left_ns;
    left_ns = 0;
  }
  if (world.now >= spins_until) world.sleep(*this, UINT64_MAX);
}

void Helper::leave(World& world) {
  Launcher& launcher = *loop;
  loop = nullptr;
  taken = false;
  spins_until = world.now + tuning::kHelperSpinNs;
  for (const auto& helper : process.helpers)
    if (helper->loop == &launcher) return;
  launcher.helper_left(world, cpu);
}

}  // namespace npu::sim
