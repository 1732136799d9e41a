"""What hardware and its programs answer, written after their documented formats; none of it is from a machine here."""

from collections.abc import Callable, Mapping

MACMON_LINE = (
    b'{"timestamp":"2026-01-02T03:04:05.678+00:00","temp":{"cpu_temp_avg":43.25,"gpu_temp_avg":36.5},'
    b'"memory":{"ram_total":25769803776,"ram_usage":20985479168,"swap_total":4294967296,"swap_usage":2602434560},'
    b'"ecpu_usage":[1181,0.082],"pcpu_usage":[1974,0.015],"gpu_usage":[461,0.25],"cpu_power":5.5,"gpu_power":4.2,'
    b'"ane_power":0.05,"all_power":9.75,"sys_power":21.5,"ram_power":0.11,"gpu_ram_power":0.003}\n'
)


def answer_from(answers: Mapping[str, str]) -> Callable[..., str]:
    """Answer a command by itself, or by its program; empty when it is not recorded."""

    def ask(*command: str) -> str:
        return answers.get(" ".join(command), answers.get(command[0], ""))

    return ask
