// Which ranks of a group exchange through links: those of one host.
#pragma once

#include <memory>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "csrc/distributed/core/links.h"

namespace npu {

struct Neighbours {
  std::unique_ptr<Links> links;  // null: there are none
  // Whether each rank of the group is linked with each other one; all ranks
  // know the same.
  bool are_all = false;
};

// Links this rank with the others on its host; all ranks call it, with a store
// that is their group's. There are no links where NPU_DISPATCH_LINKS=off says
// so.
Neighbours link_neighbours(c10d::Store& store, int rank, int size);

}  // namespace npu
