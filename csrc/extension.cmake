# Layers L4 to L6: the extension module npu_dispatch._C.
find_package(Python 3.11 REQUIRED COMPONENTS Interpreter Development.Module)
execute_process(
  COMMAND ${Python_EXECUTABLE} -c
    "import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0])"
  OUTPUT_VARIABLE NPU_TORCH_DIR OUTPUT_STRIP_TRAILING_WHITESPACE
  COMMAND_ERROR_IS_FATAL ANY)
file(READ ${NPU_TORCH_DIR}/version.py NPU_TORCH_VERSION_PY)
string(REGEX MATCH "__version__ = '([^'+]+)" _ "${NPU_TORCH_VERSION_PY}")
set(NPU_TORCH_VERSION ${CMAKE_MATCH_1})
file(READ ${PROJECT_SOURCE_DIR}/npu_dispatch/__init__.py NPU_INIT_PY)
string(REGEX MATCH "__version__ = \"([^\"]+)" _ "${NPU_INIT_PY}")
set(NPU_VERSION ${CMAKE_MATCH_1})

# Torch as a plain library: its own CMake package asks for far more than
# headers and two shared objects.
add_library(torch_headers INTERFACE)
target_include_directories(torch_headers SYSTEM INTERFACE
  ${NPU_TORCH_DIR}/include ${NPU_TORCH_DIR}/include/torch/csrc/api/include)
target_link_directories(torch_headers INTERFACE ${NPU_TORCH_DIR}/lib)
# torch's interfaces name parameters that overriders do not use.
target_compile_options(torch_headers INTERFACE -Wno-unused-parameter)

set(NPU_OPS_SHARDS 6)
set(NPU_OPS_DIR ${CMAKE_CURRENT_BINARY_DIR}/ops)
math(EXPR last "${NPU_OPS_SHARDS} - 1")
foreach(i RANGE ${last})
  string(LENGTH "${i}" digits)
  if(digits EQUAL 1)
    set(i "0${i}")
  endif()
  list(APPEND NPU_OPS_SOURCES ${NPU_OPS_DIR}/ops_${i}.cpp)
endforeach()
set(NPU_CODEGEN
  ops/codegen/gen.py ops/codegen/emit.py ops/codegen/select_ops.py)
add_custom_command(
  OUTPUT ${NPU_OPS_SOURCES}
  COMMAND ${Python_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/ops/codegen/gen.py
          ${NPU_OPS_DIR} ${NPU_OPS_SHARDS}
  DEPENDS ${NPU_CODEGEN}
  COMMENT "Generating operators")

# Each function of these passes its arguments to one function of torch: more than
# inlining and aligned functions is not to be had, and takes a third of the compiler's
# time.
set_source_files_properties(${NPU_OPS_SOURCES} PROPERTIES
  COMPILE_OPTIONS "$<$<CONFIG:Release>:-O1;-falign-functions>")

# Adds files to a target and compiles them as one.
function(npu_sources target group)
  target_sources(${target} PRIVATE ${ARGN})
  npu_compile_together(${target} ${group} ${ARGN})
endfunction()

add_library(npu_torch OBJECT ${NPU_OPS_SOURCES}
  # Each of these takes as long as a group.
  torch/kineto.cpp
  ops/manual/autocast.cpp)
target_link_libraries(npu_torch PUBLIC npu_core torch_headers)
npu_sources(npu_torch device
  torch/c_api.cpp
  torch/device.cpp
  torch/generator.cpp
  torch/graph_impl.cpp
  torch/guard.cpp
  torch/hooks.cpp
  torch/profiler_stubs.cpp
  torch/switches.cpp)
npu_sources(npu_torch memory
  torch/allocator.cpp
  torch/copy_bytes.cpp
  torch/host_allocator.cpp
  torch/host_use.cpp
  torch/replay_results.cpp)
npu_sources(npu_torch tensors
  torch/backward.cpp
  torch/error.cpp
  torch/guard_memory.cpp
  torch/host_ops.cpp
  torch/kernel_warnings.cpp
  torch/pluggable_memory.cpp
  torch/shared_memory.cpp
  torch/sparse_or_nested.cpp
  torch/storage_end.cpp
  torch/tensor.cpp)
npu_sources(npu_torch distributed
  distributed/aside.cpp
  distributed/batch.cpp
  distributed/checks.cpp
  distributed/comm_streams.cpp
  distributed/element_order.cpp
  distributed/exposure.cpp
  distributed/group.cpp
  distributed/group_calls.cpp
  distributed/group_made.cpp
  distributed/group_p2p.cpp
  distributed/group_sparse.cpp
  distributed/job_link.cpp
  distributed/job_socket.cpp
  distributed/member.cpp
  distributed/neighbours.cpp
  distributed/noted_call.cpp
  distributed/own_address.cpp
  distributed/profiled_call.cpp
  distributed/reduce_parts.cpp
  distributed/reduction.cpp
  distributed/step_timer.cpp
  distributed/transport.cpp
  distributed/work.cpp)
npu_sources(npu_torch host
  host/half_convolutions.cpp
  host/half_products.cpp
  host/kernel_cost.cpp
  host/kernel_cut.cpp
  host/kernel_size.cpp
  host/kernel_threads.cpp
  host/list_kernels.cpp
  host/result_memory.cpp
  host/scratch_memory.cpp
  host/shared_products.cpp
  host/word_kernel.cpp)
# Loops that are computed in vectors, for which roots must not set errno.
npu_sources(npu_torch vectors
  host/masked_scale.cpp
  host/random_fill.cpp)
set_source_files_properties(host/masked_scale.cpp host/random_fill.cpp PROPERTIES
  SKIP_PRECOMPILE_HEADERS ON  # compiled without these options
  COMPILE_OPTIONS "$<$<CONFIG:Release>:-O3>;-fno-math-errno")
npu_sources(npu_torch launch
  ops/boxed.cpp
  ops/frame.cpp
  ops/frame_build.cpp
  ops/key.cpp
  ops/launch.cpp
  ops/launch_state.cpp
  ops/op.cpp
  ops/plan.cpp
  ops/plan_table.cpp
  ops/stack_map.cpp)
npu_sources(npu_torch first_calls
  ops/argument_storages.cpp
  ops/cold.cpp
  ops/identity.cpp
  ops/infer.cpp
  ops/comparison.cpp
  ops/overlap.cpp
  ops/stand_ins.cpp
  ops/stride_order.cpp
  ops/sync_call.cpp
  ops/trial.cpp
  ops/unmarked_writes.cpp
  ops/unrecorded.cpp)
npu_sources(npu_torch shapes
  ops/range_length.cpp
  ops/refusals.cpp
  ops/shapes.cpp
  ops/shapes_by_hand.cpp
  ops/shapes_of_elements.cpp
  ops/shapes_of_lists.cpp
  ops/shapes_of_models.cpp)
npu_sources(npu_torch kernels
  ops/kernels.cpp
  ops/third_party.cpp
  ops/value_class.cpp
  ops/widened.cpp)
npu_sources(npu_torch by_hand
  ops/manual/attention.cpp
  ops/manual/composites.cpp
  ops/manual/copy.cpp
  ops/manual/factory.cpp
  ops/manual/foreach.cpp
  ops/manual/linalg.cpp
  ops/manual/linear.cpp
  ops/manual/lstm.cpp
  ops/manual/quantized.cpp
  ops/manual/ranges.cpp
  ops/manual/rnn.cpp
  ops/manual/shallow_copy.cpp
  ops/manual/sparse_indices.cpp
  ops/manual/sparse_or_nested.cpp
  ops/manual/touches_memory.cpp
  ops/manual/windows.cpp)

# Kineto's headers are part of torch's, but not on its include path.
set_source_files_properties(torch/kineto.cpp PROPERTIES
  COMPILE_DEFINITIONS "USE_KINETO;FMT_HEADER_ONLY"
  COMPILE_OPTIONS "-isystem${NPU_TORCH_DIR}/include/kineto"
  SKIP_PRECOMPILE_HEADERS ON)
# torch's headers are most of the compile time of a small file.
target_precompile_headers(npu_torch PRIVATE
  <ATen/core/Tensor.h> <ATen/core/boxing/impl/boxing.h> <ATen/core/stack.h>
  <ATen/core/dispatch/Dispatcher.h> <torch/library.h>)

# With torch's own pybind11, whose types this module shares: a process group's
# backend made here is passed to torch as an object of torch's class. No link
# time optimisation: it takes seconds for these few files.
Python_add_library(_C MODULE WITH_SOABI)
npu_sources(_C module
  python/device.cpp
  python/distributed.cpp
  python/errors.cpp
  python/exceptions.cpp
  python/memory.cpp
  python/memory_history.cpp
  python/memory_pools.cpp
  python/module.cpp
  python/stats.cpp)
npu_sources(_C replays
  python/call_stack.cpp
  python/empty_strided.cpp
  python/graph.cpp
  python/replayed.cpp
  python/watch.cpp)
npu_sources(_C observers
  python/aio.cpp
  python/flags.cpp
  python/foreign.cpp
  python/plan.cpp
  python/python_frames.cpp
  python/queue_cost.cpp
  python/sanitizer.cpp
  python/schedule.cpp
  python/shared_memory.cpp
  python/sync_watch.cpp
  python/word_kernel.cpp)
target_compile_definitions(_C PRIVATE NPU_DISPATCH_VERSION="${NPU_VERSION}")
target_link_libraries(_C PRIVATE npu_torch torch_cpu c10 torch_python)
if(NPU_SANITIZER MATCHES thread)
  target_sources(_C PRIVATE base/tsan_openmp.cpp)
  target_link_options(_C PRIVATE -Wl,--wrap=GOMP_parallel)
endif()
set_target_properties(_C PROPERTIES
  CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
# torch is loaded before this module; the path is for tools that load it alone.
set_target_properties(_C PROPERTIES
  BUILD_RPATH "${NPU_TORCH_DIR}/lib" INSTALL_RPATH "$ORIGIN/../torch/lib")
install(TARGETS _C LIBRARY DESTINATION npu_dispatch)
configure_file(_built.py.in _built.py @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/_built.py DESTINATION npu_dispatch)
