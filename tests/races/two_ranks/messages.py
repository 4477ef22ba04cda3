"""Messages between two ranks: what `wait()` orders, and what not."""

import torch
import torch.distributed as dist

npu = torch.npu


def _peer():
    return 1 - dist.get_rank()


def _two():
    sent, got = torch.ones(1000, device="npu"), torch.empty(1000, device="npu")
    npu.synchronize()
    return sent, got


def racy_received_read_before_the_wait():
    "unordered-collective"
    sent, got = _two()
    works = [dist.isend(sent, _peer())]
    works += [dist.irecv(got, _peer())]  # first: hccl:recv
    got + 1  # second: aten::add.Tensor
    for work in works:
        work.wait()


def racy_sent_written_before_the_wait():
    "unordered-collective"
    sent, got = _two()
    works = [dist.isend(sent, _peer())]  # first: hccl:send
    works += [dist.irecv(got, _peer())]
    sent.zero_()  # second: aten::zero_
    for work in works:
        work.wait()


def racy_only_the_send_waited_for():
    "unordered-collective"
    sent, got = _two()
    send = dist.isend(sent, _peer())
    receive = dist.irecv(got, _peer())  # first: hccl:recv
    send.wait()
    got + 1  # second: aten::add.Tensor
    receive.wait()


def correct_both_waited_for():
    sent, got = _two()
    for work in [dist.isend(sent, _peer()), dist.irecv(got, _peer())]:
        work.wait()
    sent.zero_()
    return got + 1


def correct_sent_read_before_the_wait():
    sent, got = _two()
    works = [dist.isend(sent, _peer()), dist.irecv(got, _peer())]
    doubled = sent * 2
    for work in works:
        work.wait()
    return doubled


def racy_batch_read_before_the_wait():
    "unordered-collective"
    sent, got = _two()
    batch = [dist.P2POp(dist.isend, sent, _peer())]
    batch += [dist.P2POp(dist.irecv, got, _peer())]
    works = dist.batch_isend_irecv(batch)  # first: hccl:batch_isend_irecv
    got + 1  # second: aten::add.Tensor
    for work in works:
        work.wait()


def racy_batch_overwritten_before_the_wait():
    "unordered-collective"
    sent, got = _two()
    batch = [dist.P2POp(dist.isend, sent, _peer())]
    batch += [dist.P2POp(dist.irecv, got, _peer())]
    works = dist.batch_isend_irecv(batch)  # first: hccl:batch_isend_irecv
    sent.zero_()  # second: aten::zero_
    for work in works:
        work.wait()


def correct_batch_waited_for():
    sent, got = _two()
    batch = [dist.P2POp(dist.isend, sent, _peer())]
    batch += [dist.P2POp(dist.irecv, got, _peer())]
    for work in dist.batch_isend_irecv(batch):
        work.wait()
    sent.zero_()
    return got + 1


def racy_sent_before_a_side_stream_has_written():
    "unordered-collective"
    (sent, got), side = _two(), npu.Stream()
    with npu.stream(side):
        sent.mul_(2)  # first: aten::mul_.Tensor
    works = [dist.isend(sent, _peer())]  # second: hccl:send
    works += [dist.irecv(got, _peer())]
    for work in works:
        work.wait()


def correct_synchronous_send_and_receive():
    sent, got = _two()
    for turn in range(2):
        if dist.get_rank() == turn:
            dist.send(sent, _peer())
        else:
            dist.recv(got, _peer())
    sent.zero_()
    return got + 1
