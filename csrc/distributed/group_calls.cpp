// The collectives: what is checked at the call, and what the task exchanges.
#include <ATen/ops/empty.h>

#include "csrc/distributed/checks.h"
#include "csrc/distributed/group.h"
#include "csrc/distributed/reduce_parts.h"

namespace npu {
namespace {

using c10d::OpType;

// The tensor with the dtype in which its reduction computes it.
at::Tensor as_reduced(const at::Tensor& t) {
  const at::ScalarType type = reduced_as(t.scalar_type());
  return type == t.scalar_type() ? t : t.view(type);
}

void copy_unless_same(const at::Tensor& to, const at::Tensor& from) {
  if (to.numel() && to.data_ptr() != from.data_ptr()) to.copy_(from);
}

// What is sent to, and received from, each rank.
struct Parts {
  explicit Parts(const Transport& t) : out(t.size()), in(t.size()) {}
  std::vector<Bytes> out, in;
};

// Exchanges a part with each rank. `of(p)`, which is called for one rank after
// another, returns where the part from rank p goes and what rank p is sent.
template <typename Of>
void exchange_with_each(Transport& t, const Collective& call, Of of) {
  Parts parts(t);
  for (int p = 0; p < t.size(); ++p) {
    const auto [to, from] = of(p);
    if (p == t.rank()) {
      copy_unless_same(to, from);
      continue;
    }
    parts.out[p] = bytes_of(from);
    parts.in[p] = bytes_of(to);
  }
  t.exchange(call, parts.out, parts.in);
}

using ToAndFrom = std::pair<at::Tensor, at::Tensor>;

void run_all_reduce(Transport& t, const Collective& call,
                    const at::Tensor& tensor, const Reduction& reduction) {
  const at::Tensor x = as_reduced(tensor);
  const at::Tensor mine = prepared(reduction, x);
  const int n = t.size();
  Reduced r{reduction, tensor.scalar_type() == at::kBool, {}, x, {}};
  if (n == 1 || x.nbytes() * (n - 1) <= kWholeExchange) {
    r.sent.assign(n, mine);
    return reduce_parts(t, call, r);
  }
  const int64_t chunk = (x.numel() + n - 1) / n;
  for (int p = 0; p < n; ++p) {
    r.sent.push_back(piece(mine, p * chunk, (p + 1) * chunk));
    r.returned.push_back(piece(x, p * chunk, (p + 1) * chunk));
  }
  r.kept = r.returned[t.rank()];
  reduce_parts(t, call, r);
}

int64_t sum(const std::vector<int64_t>& values) {
  int64_t total = 0;
  for (const int64_t v : values) total += v;
  return total;
}

}  // namespace

HcclGroup::WorkPtr HcclGroup::broadcast(Tensors& tensors,
                                        const c10d::BroadcastOptions& o) {
  const at::Tensor& t = only("broadcast", tensors);
  check_root("broadcast", o.rootRank, size_);
  const int root = int(o.rootRank);
  Plan plan{"broadcast", OpType::BROADCAST, {}, {}, o.timeout, o.asyncOp};
  (root == rank_ ? plan.reads : plan.writes) = {t};
  plan.results = {t};
  plan.numel = t.numel();
  plan.formats = memory_formats(t);
  plan.root = root;
  plan.run = [root](Transport& t, const Collective& call, const Tensors& reads,
                    const Tensors& writes) {
    Parts parts(t);
    if (root == t.rank())
      parts.out.assign(t.size(), bytes_of(reads[0]));
    else
      parts.in[root] = bytes_of(writes[0]);
    t.exchange(call, parts.out, parts.in);
  };
  return launch(std::move(plan));
}

HcclGroup::WorkPtr HcclGroup::allreduce(Tensors& tensors,
                                        const c10d::AllreduceOptions& o) {
  const at::Tensor& t = only("all_reduce", tensors);
  if (t.is_sparse()) return allreduce_sparse(tensors[0], o);
  const Reduction reduction = reduction_of(o.reduceOp);
  check_reduction("all_reduce", reduction, t.scalar_type());
  Plan plan{"all_reduce", OpType::ALLREDUCE, {}, {t}, o.timeout, o.asyncOp};
  plan.numel = t.numel();
  plan.formats = memory_formats(t);
  plan.reduce = reduction.op;
  plan.run = [reduction](Transport& t, const Collective& call, const Tensors&,
                         const Tensors& writes) {
    run_all_reduce(t, call, writes[0], reduction);
  };
  return launch(std::move(plan));
}

HcclGroup::WorkPtr HcclGroup::allreduce_coalesced(
    Tensors& tensors, const c10d::AllreduceCoalescedOptions& o) {
  TORCH_CHECK_VALUE(!tensors.empty(), "hccl: all_reduce of no tensors");
  WorkPtr last;
  for (at::Tensor& t : tensors) {
    Tensors one{t};
    last = allreduce(one, o);
  }
  return last;  // which ends after the others
}

HcclGroup::WorkPtr HcclGroup::reduce(Tensors& tensors,
                                     const c10d::ReduceOptions& o) {
  const at::Tensor& t = only("reduce", tensors);
  check_root("reduce", o.rootRank, size_);
  const Reduction reduction = reduction_of(o.reduceOp);
  check_reduction("reduce", reduction, t.scalar_type());
  const int root = int(o.rootRank);
  Plan plan{"reduce", OpType::REDUCE, {}, {}, o.timeout, o.asyncOp};
  (root == rank_ ? plan.writes : plan.reads) = {t};
  plan.results = {t};
  plan.numel = t.numel();
  plan.formats = memory_formats(t);
  plan.root = root;
  plan.reduce = reduction.op;
  plan.run = [root, reduction](Transport& t, const Collective& call,
                               const Tensors& reads, const Tensors& writes) {
    Parts parts(t);
    const at::Tensor& tensor = root == t.rank() ? writes[0] : reads[0];
    const at::Tensor x = as_reduced(tensor);
    const at::Tensor mine = prepared(reduction, x);
    if (root != t.rank()) {
      parts.out[root] = bytes_of(mine);
      t.exchange(call, parts.out, parts.in);
      return;
    }
    const at::Tensor rows = at::empty({t.size(), x.numel()}, x.options());
    Tensors all;
    for (int p = 0; p < t.size(); ++p) {
      all.push_back(p == root ? mine : rows.select(0, p));
      if (p != root) parts.in[p] = bytes_of(all[p]);
    }
    t.exchange(call, parts.out, parts.in);
    if (x.numel())
      combine(reduction, all, x, tensor.scalar_type() == at::kBool);
  };
  return launch(std::move(plan));
}

// `out`: one tensor for each rank, or one for all.
HcclGroup::WorkPtr HcclGroup::gathered(const char* name, OpType type,
                                       const Tensors& out, const at::Tensor& in,
                                       Milliseconds timeout, bool async) {
  Tensors all = out;
  all.push_back(in);
  check_dtypes(name, all);
  Plan plan{name, type, {in}, out, timeout, async};
  plan.run = [](Transport& t, const Collective& call, const Tensors& reads,
                const Tensors& writes) {
    const at::Tensor& mine = reads[0];
    const bool one_each = writes.size() == size_t(t.size());
    exchange_with_each(t, call, [&](int p) {
      return ToAndFrom(
          one_each ? writes[p]
                   : piece(writes[0], p * mine.numel(), (p + 1) * mine.numel()),
          mine);
    });
  };
  move_by_index(plan);
  return launch(std::move(plan));
}

HcclGroup::WorkPtr HcclGroup::allgather(std::vector<Tensors>& out, Tensors& in,
                                        const c10d::AllgatherOptions& o) {
  const at::Tensor& mine = only("all_gather", in);
  TORCH_CHECK_VALUE(out.size() == 1 && out[0].size() == size_t(size_),
                    "hccl: all_gather needs a list of ", size_,
                    " tensors, one for each rank");
  TORCH_CHECK_VALUE(out[0][rank_].numel() == mine.numel(),
                    "hccl: all_gather: the output of this rank has ",
                    out[0][rank_].numel(), " elements, its input ",
                    mine.numel());
  return gathered("all_gather", OpType::ALLGATHER, out[0], mine, o.timeout,
                  o.asyncOp);
}

HcclGroup::WorkPtr HcclGroup::_allgather_base(at::Tensor& out, at::Tensor& in,
                                              const c10d::AllgatherOptions& o) {
  TORCH_CHECK_VALUE(out.numel() == in.numel() * size_,
                    "hccl: all_gather_into_tensor needs an output of ", size_,
                    " times the input's ", in.numel(), " elements, got ",
                    out.numel());
  return gathered("all_gather_into_tensor", OpType::_ALLGATHER_BASE, {out}, in,
                  o.timeout, o.asyncOp);
}

HcclGroup::WorkPtr HcclGroup::allgather_coalesced(
    std::vector<Tensors>& out, Tensors& in, const c10d::AllgatherOptions& o) {
  // Upstream's order: out[rank][tensor].
  TORCH_CHECK_VALUE(out.size() == size_t(size_) && !in.empty(),
                    "hccl: all_gather_coalesced needs ", size_, " lists");
  WorkPtr last;
  for (size_t i = 0; i < in.size(); ++i) {
    std::vector<Tensors> to(1);
    for (const Tensors& of_rank : out) to[0].push_back(of_rank.at(i));
    Tensors one{in[i]};
    last = allgather(to, one, o);
  }
  return last;
}

HcclGroup::WorkPtr HcclGroup::allgather_into_tensor_coalesced(
    Tensors& out, Tensors& in, const c10d::AllgatherOptions& o) {
  TORCH_CHECK_VALUE(out.size() == in.size() && !in.empty(),
                    "hccl: all_gather_into_tensor of ", in.size(),
                    " inputs and ", out.size(), " outputs");
  WorkPtr last;
  for (size_t i = 0; i < in.size(); ++i)
    last = _allgather_base(out[i], in[i], o);
  return last;
}

// The tensors on the root, one for each rank; no other rank has any. They and
// `mine` must have one dtype.
Tensors HcclGroup::on_root(const char* name, const char* what,
                           const std::vector<Tensors>& lists,
                           const at::Tensor& mine, int root) const {
  if (root != rank_) {
    TORCH_CHECK_VALUE(lists.empty(), "hccl: ", name, ": only rank ", root,
                      ", the root, has ", what);
    return {};
  }
  TORCH_CHECK_VALUE(lists.size() == 1 && lists[0].size() == size_t(size_),
                    "hccl: ", name, " needs a list of ", size_,
                    " tensors on its root");
  TORCH_CHECK_VALUE(lists[0][root].numel() == mine.numel(), "hccl: ", name,
                    ": of ", what, ", the root's own has ",
                    lists[0][root].numel(), " elements, its other tensor ",
                    mine.numel());
  Tensors all = lists[0];
  all.push_back(mine);
  check_dtypes(name, all);
  return lists[0];
}

HcclGroup::WorkPtr HcclGroup::gather(std::vector<Tensors>& out, Tensors& in,
                                     const c10d::GatherOptions& o) {
  const at::Tensor& mine = only("gather", in);
  check_root("gather", o.rootRank, size_);
  const int root = int(o.rootRank);
  Plan plan{"gather", OpType::GATHER, {mine}, {}, o.timeout, o.asyncOp};
  plan.writes = on_root("gather", "outputs", out, mine, root);
  plan.root = root;
  plan.run = [root](Transport& t, const Collective& call, const Tensors& reads,
                    const Tensors& writes) {
    Parts parts(t);
    if (root == t.rank()) {
      for (int p = 0; p < t.size(); ++p)
        if (p != root) parts.in[p] = bytes_of(writes[p]);
      copy_unless_same(writes[root], reads[0]);
    } else {
      parts.out[root] = bytes_of(reads[0]);
    }
    t.exchange(call, parts.out, parts.in);
  };
  move_by_index(plan);
  return launch(std::move(plan));
}

HcclGroup::WorkPtr HcclGroup::scatter(Tensors& out, std::vector<Tensors>& in,
                                      const c10d::ScatterOptions& o) {
  const at::Tensor& mine = only("scatter", out);
  check_root("scatter", o.rootRank, size_);
  const int root = int(o.rootRank);
  Plan plan{"scatter", OpType::SCATTER, {}, {mine}, o.timeout, o.asyncOp};
  plan.reads = on_root("scatter", "inputs", in, mine, root);
  plan.root = root;
  plan.run = [root](Transport& t, const Collective& call, const Tensors& reads,
                    const Tensors& writes) {
    Parts parts(t);
    if (root == t.rank()) {
      for (int p = 0; p < t.size(); ++p)
        if (p != root) parts.out[p] = bytes_of(reads[p]);
      copy_unless_same(writes[0], reads[root]);
    } else {
      parts.in[root] = bytes_of(writes[0]);
    }
    t.exchange(call, parts.out, parts.in);
  };
  move_by_index(plan);
  return launch(std::move(plan));
}

// `in`: one tensor for each rank, or one for all.
HcclGroup::WorkPtr HcclGroup::reduce_scattered(
    const char* name, const at::Tensor& out, const Tensors& in,
    const Reduction& reduction, Milliseconds timeout, bool async) {
  check_reduction(name, reduction, out.scalar_type());
  Tensors all = in;
  all.push_back(out);
  check_dtypes(name, all);
  Plan plan{name, OpType::REDUCE_SCATTER, in, {out}, timeout, async};
  plan.reduce = reduction.op;
  plan.run = [reduction](Transport& t, const Collective& call,
                         const Tensors& reads, const Tensors& writes) {
    const int n = t.size();
    const at::Tensor to = as_reduced(writes[0]);
    Reduced r{reduction, writes[0].scalar_type() == at::kBool, {}, to, {}};
    for (int p = 0; p < n; ++p) {
      const at::Tensor from = reads.size() == size_t(n)
                                  ? as_reduced(reads[p])
                                  : piece(as_reduced(reads[0]), p * to.numel(),
                                          (p + 1) * to.numel());
      r.sent.push_back(prepared(reduction, from));
    }
    reduce_parts(t, call, r);
  };
  move_by_index(plan);
  return launch(std::move(plan));
}

HcclGroup::WorkPtr HcclGroup::reduce_scatter(
    Tensors& out, std::vector<Tensors>& in,
    const c10d::ReduceScatterOptions& o) {
  const at::Tensor& mine = only("reduce_scatter", out);
  TORCH_CHECK_VALUE(in.size() == 1 && in[0].size() == size_t(size_),
                    "hccl: reduce_scatter needs a list of ", size_,
                    " tensors, one for each rank");
  TORCH_CHECK_VALUE(in[0][rank_].numel() == mine.numel(),
                    "hccl: reduce_scatter: the input for this rank has ",
                    in[0][rank_].numel(), " elements, its output ",
                    mine.numel());
  return reduce_scattered("reduce_scatter", mine, in[0],
                          reduction_of(o.reduceOp), o.timeout, o.asyncOp);
}

HcclGroup::WorkPtr HcclGroup::_reduce_scatter_base(
    at::Tensor& out, at::Tensor& in, const c10d::ReduceScatterOptions& o) {
  TORCH_CHECK_VALUE(in.numel() == out.numel() * size_,
                    "hccl: reduce_scatter_tensor needs an input of ", size_,
                    " times the output's ", out.numel(), " elements, got ",
                    in.numel());
  return reduce_scattered("reduce_scatter_tensor", out, {in},
                          reduction_of(o.reduceOp), o.timeout, o.asyncOp);
}

HcclGroup::WorkPtr HcclGroup::reduce_scatter_tensor_coalesced(
    Tensors& out, Tensors& in, const c10d::ReduceScatterOptions& o) {
  TORCH_CHECK_VALUE(out.size() == in.size() && !in.empty(),
                    "hccl: reduce_scatter_tensor of ", in.size(),
                    " inputs and ", out.size(), " outputs");
  WorkPtr last;
  for (size_t i = 0; i < in.size(); ++i)
    last = _reduce_scatter_base(out[i], in[i], o);
  return last;
}

HcclGroup::WorkPtr HcclGroup::alltoall(Tensors& out, Tensors& in,
                                       const c10d::AllToAllOptions& o) {
  TORCH_CHECK_VALUE(out.size() == size_t(size_) && in.size() == size_t(size_),
                    "hccl: all_to_all needs two lists of ", size_, " tensors");
  Tensors all = out;
  all.insert(all.end(), in.begin(), in.end());
  check_dtypes("all_to_all", all);
  TORCH_CHECK_VALUE(out[rank_].numel() == in[rank_].numel(),
                    "hccl: all_to_all: this rank sends itself ",
                    in[rank_].numel(), " elements and expects ",
                    out[rank_].numel());
  Plan plan{"all_to_all", OpType::ALLTOALL, in, out, o.timeout, o.asyncOp};
  plan.run = [](Transport& t, const Collective& call, const Tensors& reads,
                const Tensors& writes) {
    exchange_with_each(t, call,
                       [&](int p) { return ToAndFrom(writes[p], reads[p]); });
  };
  move_by_index(plan);
  return launch(std::move(plan));
}

// Each rank gets as many rows of the first dimension as the sizes say.
HcclGroup::WorkPtr HcclGroup::alltoall_base(at::Tensor& out, at::Tensor& in,
                                            std::vector<int64_t>& out_sizes,
                                            std::vector<int64_t>& in_sizes,
                                            const c10d::AllToAllOptions& o) {
  check_dtypes("all_to_all_single", {out, in});
  const auto elements = [&](const char* which, const at::Tensor& t,
                            const std::vector<int64_t>& sizes) {
    const int64_t rows = t.dim() ? t.size(0) : 1;
    if (sizes.empty()) {
      TORCH_CHECK_VALUE(rows % size_ == 0, "hccl: all_to_all_single: ", which,
                        " has ", rows, " rows, which ", size_,
                        " ranks cannot share evenly");
      return std::vector<int64_t>(size_, t.numel() / size_);
    }
    TORCH_CHECK_VALUE(sizes.size() == size_t(size_) && sum(sizes) == rows,
                      "hccl: all_to_all_single: ", which, "_split_sizes ",
                      sizes, " must be ", size_, " numbers with the sum ",
                      rows);
    std::vector<int64_t> each;
    for (const int64_t n : sizes)
      each.push_back(rows ? n * (t.numel() / rows) : 0);
    return each;
  };
  const auto to = elements("output", out, out_sizes);
  const auto from = elements("input", in, in_sizes);
  TORCH_CHECK_VALUE(to[rank_] == from[rank_],
                    "hccl: all_to_all_single: this rank sends itself ",
                    from[rank_], " elements and expects ", to[rank_]);
  Plan plan{"all_to_all_single",
            OpType::ALLTOALL_BASE,
            {in},
            {out},
            o.timeout,
            o.asyncOp};
  plan.run = [to, from](Transport& t, const Collective& call,
                        const Tensors& reads, const Tensors& writes) {
    int64_t at_out = 0, at_in = 0;
    exchange_with_each(t, call, [&](int p) {
      const int64_t w = at_out, r = at_in;
      return ToAndFrom(piece(writes[0], w, at_out += to[p]),
                       piece(reads[0], r, at_in += from[p]));
    });
  };
  move_by_index(plan);
  return launch(std::move(plan));
}

HcclGroup::WorkPtr HcclGroup::barrier(const c10d::BarrierOptions& o) {
  Plan plan{"barrier", OpType::BARRIER, {}, {}, o.timeout, o.asyncOp};
  plan.host_waits = true;
  plan.run = [](Transport& t, const Collective& call, const Tensors&,
                const Tensors&) {
    const Parts none(t);
    t.exchange(call, none.out, none.in);
  };
  return launch(std::move(plan));
}

}  // namespace npu
