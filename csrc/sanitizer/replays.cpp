// What the sanitizer knows about replays of graphs.
#include "csrc/interop/flag.h"
#include "csrc/sanitizer/sanitizer.h"
#include "csrc/taskqueue/stream.h"

namespace npu {
namespace {

bool uses_flag(const npu_kernel& kernel) {
  return &kernel == &kSetFlag || &kernel == &kTakeFlag ||
         &kernel == &kReachFlag;
}

}  // namespace

// A replay is one task, except that a flag within it orders what comes after
// the flag.
void Sanitizer::replays(Stream& stream, const KernelCall* calls, size_t count,
                        Captured captured) {
  for (size_t i = 0; i < count;) {
    if (uses_flag(*calls[i].kernel)) {
      flag_replayed(stream, calls[i++]);
      continue;
    }
    const size_t first = i;
    while (i < count && !uses_flag(*calls[i].kernel)) ++i;
    if (!examine(stream, stream.tail(), calls + first, i - first, call_site(),
                 {Origin::kReplay, captured}) &&
        hooks_.raise)
      hooks_.raise();
  }
}

void Sanitizer::flag_replayed(Stream& stream, const KernelCall& call) {
  const uint64_t flag = call.words[0];
  if (call.kernel != &kSetFlag)
    flag_awaited(&stream, flag, call.kernel == &kTakeFlag);
  else if (call.words[1])
    flag_raised(stream, stream.tail() + 1, flag);
  else
    flag_lowered(flag);
}

void Sanitizer::note_overwritten(const Access& write, const From& from) {
  shadow_.each_in(write.box.lo, write.box.hi, [&](Region& region) {
    if (region.live && from.before(region))
      region.overwritten = std::make_shared<const Access>(write);
  });
}

void Sanitizer::check_overwritten(const Access& access, Region& region,
                                  const From& from,
                                  std::vector<Finding>& findings) const {
  if (from.before(region)) return;  // it reads what it has written there itself
  const Answer meets = overlap(region.overwritten->box, access.box);
  if (access.writes) {
    if (meets == Answer::kYes) region.overwritten.reset();
  } else if (from.after(region) && meets != Answer::kNo) {
    Finding f = describe(FindingKind::kOverwrittenResult, region);
    f.first = side(*region.overwritten);
    f.second = side(access);
    findings.push_back(f);
  }
}

}  // namespace npu
