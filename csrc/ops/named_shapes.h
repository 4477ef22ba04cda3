// Tables of shape functions.
#pragma once

#include <algorithm>
#include <iterator>
#include <string_view>

#include "csrc/ops/shapes.h"

namespace npu {

struct NamedShapes {
  std::string_view name;
  ShapeFunction function;
};

// The function of that name, or null.
template <size_t n>
ShapeFunction find_named(const NamedShapes (&table)[n], std::string_view name) {
  const auto* const at =
      std::find_if(std::begin(table), std::end(table),
                   [&](const NamedShapes& each) { return each.name == name; });
  return at == std::end(table) ? nullptr : at->function;
}

}  // namespace npu
