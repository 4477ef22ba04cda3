#include "csrc/ops/pieces.h"

#include "csrc/host/denormals.h"
#include "csrc/host/piece_mode.h"
#include "csrc/placement/shared_loop.h"

namespace npu {

bool run_in_pieces(const Cut& cut, at::ArrayRef<npu_view> views, Frames& frames,
                   const uint64_t* words,
                   c10::function_ref<std::unique_ptr<Frame>()> make) {
  const int pieces = pieces_of(cut);
  if (pieces < 2) return false;
  if (frames.size() != size_t(pieces)) [[unlikely]] {
    Frames made;
    for (int piece = 0; piece < pieces; ++piece) {
      std::vector<npu_view> own(views.begin(), views.end());
      std::vector<uint64_t> offsets;
      std::vector<at::DimVector> sizes;
      cut_views(cut, piece, pieces, own, offsets, sizes);
      made.push_back(make());
      made.back()->set_shapes(own, offsets);
    }
    frames = std::move(made);
  }
  struct Task {
    const Frames& frames;
    const uint64_t* words;
    const bool flushes_denormals;
  } task{frames, words, flushes_denormals()};
  run_shared(
      pieces, pieces,
      [](void* context, int piece) {
        const Task& task = *static_cast<const Task*>(context);
        const PieceMode mode(task.flushes_denormals);
        task.frames[size_t(piece)]->run(task.words);
      },
      &task, cut.wakes);
  return true;
}

}  // namespace npu
