"""What a comparison of rates is made of, without running anything: parsing, spreads, ratios, bars, the table."""

import json
import statistics

# Ours over theirs. Prefill depends on whether the CPU multiplies matrices in tiles.
DECODE_BAR = 0.9
PREFILL_BAR = 2.0
PREFILL_BAR_AMX = 8.0
OWN_FORMATS_BAR_AMX = 4.0


class NotUsable(Exception):
    """What a program printed cannot be what was asked for."""


def parse_llama_bench(text, prompt, generate):
    """The one test of a llama-bench run with `-o jsonl -r 1`: its tokens per second, and what it says of itself."""
    records = []
    for line in text.splitlines():
        if line.startswith("{"):
            try:
                records.append(json.loads(line))
            except json.JSONDecodeError as error:
                raise NotUsable(f"not JSON: {line[:200]}") from error
    if len(records) != 1:
        raise NotUsable(f"{len(records)} tests in place of one")
    record = records[0]
    if (record.get("n_prompt"), record.get("n_gen")) != (prompt, generate):
        raise NotUsable(f"a test of {record.get('n_prompt')} and {record.get('n_gen')} tokens, "
                        f"not {prompt} and {generate}")
    samples = record.get("samples_ts", [])
    if len(samples) != 1 or not samples[0] > 0:
        raise NotUsable(f"rates {samples}, not one above zero")
    return samples[0], record


def parse_epic(line, command):
    """Tokens per second of one measurement of epic_engine_rates_bench."""
    try:
        record = json.loads(line)
    except json.JSONDecodeError as error:
        raise NotUsable(f"not JSON: {line[:200]!r}") from error
    if record.get("command") != command:
        raise NotUsable(f"an answer to {record.get('command')}, not to {command}")
    rate = record.get("tokens_per_second", 0)
    if not rate > 0:
        raise NotUsable(f"a rate of {rate}")
    return rate


def spread(values):
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def compare(ours, theirs):
    """Rates of one thing, measured in turn: round i of ours beside round i of theirs."""
    if len(ours) != len(theirs) or not ours:
        raise ValueError(f"{len(ours)} rounds of ours, {len(theirs)} of theirs")
    return {"ours": spread(ours), "theirs": spread(theirs),
            "ratio": spread([mine / other for mine, other in zip(ours, theirs)])}


def best_of(rates):
    """The key with the highest rate of {setting: rate or None}; None did not run."""
    ran = {key: rate for key, rate in rates.items() if rate is not None}
    return max(ran, key=ran.get) if ran else None


def bar_of(test, isa, model_format):
    """The ratio that `test` must reach against llama.cpp with the model in that format, or None."""
    has_tiles = "AMX" in isa
    if test.startswith("decode"):
        return DECODE_BAR if model_format == "same file" else None
    if model_format == "same file":
        return PREFILL_BAR_AMX if has_tiles else PREFILL_BAR
    return OWN_FORMATS_BAR_AMX if has_tiles else None


def table(results):
    """Rows of the report: one for each test and format."""
    lines = [f"{'test':<14}{'llama.cpp with':<18}{'ours, tok/s':>26}{'llama.cpp, tok/s':>26}{'ratio':>22}  bar"]
    for row in results:
        def of(name, digits):
            value = row[name]
            return f"{value['median']:.{digits}f} ({value['min']:.{digits}f}..{value['max']:.{digits}f})"
        bar = "-" if row["bar"] is None else f"{row['bar']:g} {'met' if row['met'] else 'NOT met'}"
        lines.append(f"{row['test']:<14}{row['format']:<18}{of('ours', 1):>26}{of('theirs', 1):>26}"
                     f"{of('ratio', 2):>22}  {bar}")
    return "\n".join(lines)
