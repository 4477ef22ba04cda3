"""the same by `accelerate launch --num_processes 2`."""

from two_ranks import TORCHRUN, figures_of

LIBRARY = "accelerate"
ALIAS = True

LAUNCH = ("-m", "accelerate.commands.launch", "--num_processes", "2")


def run(device):
    # Accelerate's command starts several processes on cpu by MPI alone.
    launcher = TORCHRUN if device == "cpu" else LAUNCH
    return figures_of("accelerate_loop", device, launcher)
