#include "csrc/torch/backward.h"

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>

#include <memory>

namespace npu {
namespace {

// To reach a protected member: a queue of the thread's own is none of the
// engine's state.
struct Queue : torch::autograd::Engine {
  static void make_anew() {
    constexpr auto set = &Queue::init_local_ready_queue;
    (torch::autograd::Engine::get_default_engine().*
     set)(std::make_shared<torch::autograd::ReadyQueue>());
  }
};

}  // namespace

void drop_unfinished_backward() {
  if (torch::autograd::get_current_graph_task_id() == -1) Queue::make_anew();
}

}  // namespace npu
