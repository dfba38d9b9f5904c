"""Does every mistake in a file get its line, its path, what is wrong and the remedy?

In the tables, § stands before the place that must be named; it is taken out before the text is read.
"""

from pathlib import Path

import pytest

from tidegate.config import load, parse
from tidegate.core.errors import ConfigurationError

FLEET = "pools: {m: {replicas: [{url: 'http://e:1'}]}, n: {replicas: [{url: 'http://e:2'}]}}\n"
DIGEST = "0123456789abcdef" * 4
KEYS = f"tenants: {{t: {{keys: {{k: {{sha256: {DIGEST}}}}}}}}}\n"


def problems_in(text: str, **environ: str) -> list[str]:
    with pytest.raises(ConfigurationError) as caught:
        parse(text, "f.yaml", environ=environ)
    return caught.value.problems


def replica(fields: str) -> str:
    return f"pools: {{m: {{replicas: [{{{fields}}}]}}}}"


def pool(fields: str) -> str:
    other = "n: {replicas: [{url: 'http://e:2'}]}"
    return f"pools: {{{other}, m: {{replicas: [{{url: 'http://e:1'}}], {fields}}}}}"


def tenant(fields: str) -> str:
    return FLEET + f"classes: {{high: {{}}, low: {{}}}}\ntenants: {{t: {{{fields}}}}}"


def simulated(fields: str) -> str:
    return FLEET + f"simulation: {{{fields}}}"


def key(fields: str) -> str:
    return tenant(f"keys: {{k: {{{fields}}}}}")


SHAPE = [
    (FLEET + "§listn: 127.0.0.1:1", 'listn: is not a setting; did you mean "listen"?'),
    (FLEET + "§zzz: 1", 'zzz: is not a setting; known are "listen", "tls"'),
    (FLEET + "http: {§head_byte: 1}", 'http.head_byte: is not a setting; did you mean "head_bytes"?'),
    (FLEET + "shutdown_grace_s: 1\n§shutdown_grace_s: 2", "shutdown_grace_s: stands twice, first in line 2"),
    (FLEET + "shutdown_grace_s: §30s", "needs a number, not text; write a bare number of seconds"),
    (FLEET + "shutdown_grace_s: §'30'", "needs a number, not text in quotes"),
    (FLEET + "shutdown_grace_s: §[30]", "needs a number, not a list"),
    (FLEET + "shutdown_grace_s: §true", "needs a number, not true or false"),
    (FLEET + "shutdown_grace_s: §1:30", "needs a number, not text"),  # YAML 1.1 would read 90
    (FLEET + "http: {body_bytes: §32MB}", "needs a whole number, not text; write a bare number of bytes"),
    (FLEET + "http: {headers: §1.5}", "needs a whole number, not a number"),
    (FLEET + f"http: {{headers: §{'9' * 5000}}}", "has too many digits"),
    (FLEET + "http:§ ", "has no value; it needs a mapping"),
    (FLEET + "http: §[]", "http: needs a mapping of keys to values, not a list"),
    (FLEET + "limits:§", "limits: has no value; write null if none is meant"),
    (FLEET + "http: {<<: {headers: 20}}".replace("<<", "§<<"), "has a merge key (<<); write the keys out"),
    (FLEET + "http: {§[a]: 1}", "has a key that is not text"),
    (FLEET + "http: {headers: §!!python/object:os.system 1}", "tags are not supported"),
    (FLEET + "default_class: §!secret x", 'has the YAML tag "!secret"'),
    (pool("inject_usage: §1"), "needs true or false, not a number"),
    (pool("aliases: §gpt"), "needs a list, not text; put it into brackets"),
    (pool("engine: §vlm"), 'is not known; did you mean "vllm"?'),
    (pool("routing: {policy: §nearest}"), "pools.m.routing.policy: is not known; known are"),
    (pool("degradation: [{step: §clmp}]"), 'degradation[0].step: is not known; did you mean "clamp"?'),
    (pool("degradation: [§{above: 1}]"), "lacks step; it is one of clamp, fallback, shed"),
    (pool("degradation: [§shed]"), "needs a mapping, not text"),
    (pool("degradation: [§{step: shed, above: 1}]"), "lacks below; it needs a number"),
    (
        "pools: {m: {§replicas: [{weight: 1}]}}".replace("§", "").replace("[{", "[§{"),
        "lacks url; it needs text",
    ),
    ("§listen: 127.0.0.1:1", "f.yaml:1:1: lacks pools; it needs a mapping"),
    ("§[pools]", "f.yaml:1:1: needs a mapping of keys to values, not a list"),
    (FLEET + "x-y: a§: b", "is not YAML: a second colon in one line"),
    (FLEET + "http:\n§\theaders: 3", "a tab stands where only spaces may"),
    (FLEET + "http: {headers: 3\n§", "is not YAML: expected ',' or '}'"),
    (FLEET + "http: §*nowhere", "is not YAML: found undefined alias"),
    (FLEET + "§---\nb: 1", "is more than one YAML document"),
    ("a: " + "[" * 31 + "§[" + "]" * 32, "more than 32 levels deep"),
]

RANGES = [
    (FLEET + "shutdown_delay_s: §-0.1", "is -0.1; it must be at least 0 and at most 31,536,000"),
    (FLEET + "shutdown_grace_s: §-1", "is -1; it must be at least 0 and at most 31,536,000"),
    (FLEET + "limits: {requests_per_minute: §0}", "is 0; it must be above 0"),
    (FLEET + "limits: {tokens_per_minute: §-5}", "is -5; it must be above 0"),
    (FLEET + "limits: {tokens_per_minute: §.nan}", "is nan; it must be"),
    (FLEET + "limits: {tokens_per_minute: §-.INF}", "is -inf; it must be"),
    (FLEET + "limits: {tokens_per_minute: §1e400}", "is inf; it must be"),
    (FLEET + "limits: {burst_s: §0}", "is 0; it must be above 0"),
    (FLEET + "limits: {max_in_flight: §0}", "is 0; it must be at least 1"),
    (FLEET + "weights: {output: §-1}", "weights.output: is -1; it must be at least 0"),
    (FLEET + "media: {tokens_per_image: §-1}", "is -1; it must be at least 0"),
    (FLEET + "http: {head_bytes: §10}", "is 10; it must be at least 1,024"),
    (FLEET + "upstream: {connect_timeout_s: §0}", "is 0; it must be above 0"),
    (FLEET + "upstream: {inter_token_timeout_s: §0}", "is 0; it must be above 0"),
    (FLEET + "classes: {c: {guaranteed_share: §1.5}}", "is 1.5; it must be at least 0 and at most 1"),
    (FLEET + "classes: {c: {budgets: {ttft_s: §0}}}", "classes.c.budgets.ttft_s: is 0; it must be above 0"),
    (tenant("weight: §0"), "is 0; it must be above 0"),
    (replica("url: 'http://e:1', weight: §0"), "is 0; it must be above 0"),
    (replica("url: 'http://e:1', gate: {max_concurrency: §0}"), "is 0; it must be at least 1"),
    (pool("breaker: {failure_ratio: §0}"), "is 0; it must be above 0 and at most 1"),
    (pool("prediction: {output_quantile: §1}"), "is 1; it must be above 0 and below 1"),
    (pool("degradation: [{step: shed, above: §7, below: 0.5}]"), "is 7; it must be above 0 and at most 1"),
    (pool("context_tokens: §0"), "pools.m.context_tokens: is 0; it must be at least 1"),
]

MEANING = [
    (FLEET + "listen: §0.0.0.0:8080", "no keys are configured; add tenants with keys"),
    (FLEET + "listen: §gateway.example:80", "no keys are configured"),
    (FLEET + "listen: §8080", "needs a host and a port, such as 127.0.0.1:8080"),
    (FLEET + "listen: §localhost:65536", "needs a port from 0 to 65535"),
    (FLEET + "listen: §'::1:80'", 'has an IPv6 address without brackets; write such as "[::1]:8080"'),
    (FLEET + KEYS + "admin: {listen: §'[::]:9090'}", "there is no token_sha256; set one"),
    (FLEET + "admin: {listen: §'127.0.0.1:8080'}", "is the clients' listen as well"),
    (FLEET + "admin: {token_sha256: §abc}", "has 3 hex digits, a SHA-256 digest has 64"),
    (FLEET + "admin: {hosts: [ok, §'http://x/']}", "admin.hosts[1]: is not a host name"),
    (FLEET + "§classes: {a: {guaranteed_share: 0.6}, b: {guaranteed_share: 0.5}}", "shares of 1.1 in all"),
    (FLEET + "§classes: {}", "is empty; name one class"),
    (FLEET + "classes: {§a b: {}}", 'classes."a b": is not a name'),
    (FLEET + "default_class: §gold", 'names the class "gold", which does not exist; known are "default"'),
    (pool("queue: {max_requests: §5}") + "\nclasses: {a: {guaranteed_places: 6}}", "guaranteed_places are 6"),
    ("§pools: {}", "has no pool; name one model"),
    ("pools: {§'a b': {replicas: [{url: 'http://e:1'}]}}", 'pools."a b": is no model name'),
    ("pools: {m: {§replicas: []}}", "is empty; a pool needs one replica"),
    (pool("aliases: [a, §a]"), '"a" already means the pool "m"'),
    (pool("aliases: [§n]"), 'pools.m.aliases[0]: "n" already means the pool "n"'),
    ("pools: {a: {discover: true, replicas: [{url: 'http://e'}]}, "
     "b: {discover: §true, replicas: [{url: 'http://f'}]}}", 'is true for "a" as well'),
    ("pools: {m: {replicas: [{url: 'http://e'}, {url: §'http://e:80/'}]}}", "is that of an earlier replica"),
    ("pools: {m: {replicas: [{url: 'http://e', name: a}, {url: 'http://f', name: §a}]}}", '"a" is taken'),
    (replica("url: §'ftp://e'"), "needs a URL that begins with http:// or https://"),
    (replica("url: §'e:8000'"), "needs a URL that begins with http:// or https://"),
    (replica("url: §'http://e:99999'"), "needs a port from 0 to 65535"),
    (replica("url: §'http://e:0'"), "has port 0"),
    (replica("url: §'http://'"), "needs a host that is a name or an IP address"),
    (replica("url: §'http://a..b:80'"), "needs a host that is a name or an IP address"),
    (replica(f"url: §'http://{'a' * 64}.test'"), "needs a host that is a name or an IP address"),
    (replica("url: §'http://[1.2.3.4'"), "is not a URL"),
    (replica("url: §'http://e/v1/'"), "must not end in /v1; leave it off"),
    (replica("url: §'http://e/a?b=c'"), "must not have a query or a fragment"),
    (replica("url: §'http://e/a b'"), "has a path with characters that a URL must escape"),
    (replica("url: 'http://e', credential_env: §UNSET"), "variable UNSET, which is not set"),
    (replica("url: 'http://e', credential_env: §EMPTY"), "leads to an empty credential"),
    (replica("url: 'http://e', credential_env: §SPLIT"), "leads to a credential with spaces"),
    (replica("url: 'http://e', credential_file: §no/such"), "names no/such, which cannot be read"),
    (replica("url: 'http://e', credential_env: EMPTY, credential_file: §x"), "stands beside credential_env"),
    (replica("url: 'http://e', credential_file: §\"a\\0b\""), "is not a path"),
    (replica(f"url: 'http://e', credential_file: §{'x' * 300}"), "which cannot be read: File name too long"),
    (replica("url: 'http://e', credential_env: §\"\\uD800\""), "names no environment variable that is set"),
    (FLEET + "default_class: §\"\\uD800\"", 'names the class "\\ud800"'),
    (pool("extras: [§tokenize]"), "is not a route; write a plain path that begins with /"),
    (pool("extras: [§/a/../v1/models]"), "is not a route"),
    (pool("extras: [§/v1/Chat/completions]"), "is a governed route of the API"),
    (
        "pools: {a: {extras: [/x], replicas: [{url: 'http://e'}]}, "
        "b: {extras: [§/x], replicas: [{url: 'http://f'}]}}",
        'is an extra of "a" as well',
    ),
    (pool("probe: {path: §health}"), "is not a path; begin it with /"),
    (pool("degradation: [{step: shed, above: 0.5, below: §0.6}]"), "is 0.6, over above (0.5); lower it"),
    (pool("degradation: [{step: fallback, above: 1, below: 1, pool: §m}]"), "is the pool itself"),
    (pool("degradation: [{step: fallback, above: 1, below: 1, pool: §nn}]"), 'did you mean "n"?'),
    (pool("degradation: [{step: shed, above: 1, below: 1, classes: [§defualt]}]"), 'did you mean "default"?'),
    (pool("breaker: {open_s: 9, open_max_s: §3}"), "is below open_s (9)"),
    (pool("health: {interval_s: 9, stale_after_s: §3}"), "is below interval_s (9)"),
    (pool("deadlines: {ttft_s: 9, total_s: §3}"), "is below ttft_s (9)"),
    (tenant("class: §hihg"), 'names the class "hihg", which does not exist; did you mean "high"?'),
    (tenant("classes: [low, §x]"), 'tenants.t.classes[1]: names the class "x"'),
    (tenant("pools: [§x]"), 'names the pool "x", which does not exist; known are "m", "n"'),
    (tenant("§pools: []"), "is empty, so nothing may be used"),
    (tenant("pools: [m], pool_limits: {§n: {}}"), 'is "n", which is not among the tenant\'s pools'),
    (tenant("pool_limits: {§x: {}}"), 'names the pool "x"'),
    (key(f"sha256: {DIGEST}, pools: [§x]"), 'names the pool "x"'),
    (key(f"sha256: {DIGEST}, expires: §tomorrow"), "is not a date; write such as 2030-12-31"),
    (key("sha256: §tg-zzz"), "looks like the key itself, not its digest"),
    (key(f"sha256: §{DIGEST}0"), "has 65 hex digits"),
    (key(f"sha256: {DIGEST}}}, b: {{sha256: §{DIGEST.upper()}"), "is the digest of tenants.t.keys.k"),
    (simulated("pools: {§x: {}}"), 'names the pool "x", which does not exist'),
    (simulated("pools: {m: {replicas: {§f: {}}}}"), 'names the replica "f", which does not exist'),
    (simulated("pools: {m: {profile: §h100}}"), 'names the profile "h100"'),
    (
        simulated(
            "pools: {m: {disaggregation: {prefill_profile: §h100,"
            " link: {bandwidth_bytes_per_s: 1, kv_bytes_per_token: 1}}}}"
        ),
        'names the profile "h100"',
    ),
    (
        simulated(
            "pools: {m: {disaggregation: {link: {bandwidth_bytes_per_s: 1, kv_bytes_per_token: 1},"
            " prefill: {curve: {a_s: 1}, §table: {tokens: {points: [1], seconds: [1]}}}}}}"
        ),
        "disaggregation.prefill.table: stands beside curve; remove one",
    ),
    (simulated("pools: {m: {profile: demo, profile_file: §x.json}}"), "stands beside profile; remove one"),
    (simulated("pools: {m: {profile: demo, §engine: {max_num_seqs: 9_000}}}"), "or lower max_num_seqs"),
    (simulated("pools: {m: {engine: {kv: §pages}}}"), 'is not known; did you mean "paged"?'),
    (simulated("pools: {m: {curve: {a_s: §0}}}"), "simulation.pools.m.curve.a_s: is 0; it must be above 0"),
    (
        simulated("pools: {m: {curve: {a_s: 1}, §table: {tokens: {points: [1], seconds: [1]}}}}"),
        "simulation.pools.m.table: stands beside curve; remove one",
    ),
    (
        simulated("pools: {m: {table: {tokens: §{points: [1, 2], seconds: [1]}}}}"),
        "table.tokens: curve: 2 points, but seconds for 1",
    ),
    (simulated("tenants: {t: {pool: §x}}"), 'names the pool "x"'),
    (tenant("pools: [m]}}\nsimulation: {tenants: {t: {pool: §n}"), "which is not among the tenant's pools"),
    (simulated("tenants: {t: {class: §x}}"), 'names the class "x"'),
    (
        "pools: {m: {replicas: [{url: 'http://e:1'}]}}\nclasses: {hi: {}, lo: {}}\n"
        "tenants: {t: {class: lo}}\nsimulation: {tenants: {t: {class: §hi}}}",
        "which is not among the tenant's classes",
    ),
    (tenant("}}\nsimulation: {tenants: {§x: {}"), 'names the tenant "x"'),
    (simulated("faults: [{fault: crash, replica: §x, at_s: 1}]"), 'names the replica "x"'),
    (
        simulated("faults: [{fault: errors, replica: 'e:1', at_s: 1, share: 1, status: §450}]"),
        "is 450, which blames the client",
    ),
    (simulated("faults: [{fault: §fire, replica: 'e:1', at_s: 1}]"), "is not known"),
    (FLEET + "limits: {tokens_per_minute: 1}\n§weights: {input: 0, output: 0}", "limits nothing"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "words"), [*SHAPE, *RANGES, *MEANING])
def test_one_mistake_is_named_at_its_place(text: str, words: str) -> None:
    """One mistake gives one problem, with its line and column."""
    before = text.partition("§")[0]
    place = f"f.yaml:{before.count(chr(10)) + 1}:{len(before) - before.rfind(chr(10))}: "

    problems = problems_in(text.replace("§", ""), EMPTY="", SPLIT="two words")

    assert "\n".join(problems).isascii()
    assert len(problems) == 1, problems
    assert problems[0].startswith(place)
    assert words in problems[0]


def test_all_mistakes_are_reported_at_once_in_the_order_of_the_file() -> None:
    """Shape, range and meaning are judged together, beside what cannot even be read."""
    problems = problems_in("""
shutdown_grace_s: -3
pools:
  m:
    aliases: [a, a]
    replicas:
      - url: ftp://x
      - {url: "http://b:1", weight: .nan, credential_env: UNSET}
    deadlines: {ttft_s: 30s}
  broken: {}
classes:
  batch: {max_wait_s: soon}
tenants:
  t: {class: batsh, pools: [broken]}
""")
    assert [line.split(": ")[0] + " " + line.split(": ")[1] for line in problems] == [
        "f.yaml:2:19 shutdown_grace_s",
        "f.yaml:5:18 pools.m.aliases[1]",
        "f.yaml:7:14 pools.m.replicas[0].url",
        "f.yaml:8:37 pools.m.replicas[1].weight",
        "f.yaml:8:59 pools.m.replicas[1].credential_env",
        "f.yaml:9:25 pools.m.deadlines.ttft_s",
        "f.yaml:10:11 pools.broken",
        "f.yaml:12:23 classes.batch.max_wait_s",
        "f.yaml:14:14 tenants.t.class",  # and not t.pools: broken is broken, but not unknown
    ]


@pytest.mark.parametrize(
    "text",
    [
        key("sha256: hunter2"),
        key("sha256: sk-hunter2"),
        replica("url: 'http://me:hunter2@e'"),
        replica("url: hunter2"),
        replica("url: 'http://e', credential_env: sk-hunter2"),
        replica("url: 'http://e', credential_env: A"),
        replica("url: 'http://e', weight: hunter2"),
        FLEET + "admin: {token_sha256: hunter2}",
    ],
)
def test_no_message_repeats_what_may_be_a_secret(text: str) -> None:
    """A key that was pasted into the wrong place must not reach a log through its error."""
    assert "hunter2" not in "\n".join(problems_in(text, A="hunter2 hunter2"))


def test_aliases_cannot_unfold_without_bound() -> None:
    """A few lines that stand for a billion values are refused, and soon."""
    bomb = "a: &a [x, x, x, x, x, x, x, x, x, x]\n"
    for here, there in zip("bcdefghi", "abcdefgh", strict=True):
        bomb += f"{here}: &{here} [{', '.join([f'*{there}'] * 10)}]\n"
    assert all("is not a setting" in line or "lacks pools" in line for line in problems_in(bomb))

    replicas = "\n".join(f"  p{i}: *p" for i in range(200))
    one = "{replicas: [&r {url: 'http://e'}" + ", *r" * 100 + "]}"
    problems = problems_in(f"pools:\n  p: &p {one}\n{replicas}")
    assert any("is beyond the 10000 values that aliases may stand for" in line for line in problems)


def test_a_value_that_holds_itself_is_refused() -> None:
    """An alias to the mapping around it does not send the walk round in circles."""
    problems = problems_in("pools: &p {m: {replicas: [{url: 'http://e', gate: *p}]}}")
    assert len(problems) == 1
    assert "f.yaml:1:12: pools.m.replicas[0].gate.m: is not a setting" in problems[0]


def test_tls_files_must_exist_beside_the_file(tmp_path: Path) -> None:
    """Paths start at the folder of the configuration."""
    (tmp_path / "there.pem").touch()
    path = tmp_path / "f.yaml"
    path.write_text(FLEET + "tls: {certificate: there.pem, private_key: gone.pem}")
    with pytest.raises(ConfigurationError) as caught:
        load(path)
    assert caught.value.problems == [
        f"{path}:2:44: tls.private_key: names {tmp_path}/gone.pem, which cannot be read: "
        "No such file or directory; paths start at the configuration's folder"
    ]


def test_tls_files_must_be_a_certificate_and_its_key(tmp_path: Path) -> None:
    """What could not be served with is said here, and not by a traceback at the start."""
    for name in ("cert.pem", "key.pem"):
        (tmp_path / name).write_text("no PEM")
    path = tmp_path / "f.yaml"
    path.write_text(FLEET + "tls: {certificate: cert.pem, private_key: key.pem}")
    with pytest.raises(ConfigurationError, match=r"f.yaml:2:1: tls: cannot be used; .* must belong together"):
        load(path)


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"", "is empty; it needs at least pools"),
        (b"# only a comment\n", "is empty"),
        (b"a: \xff", "is not UTF-8 at byte 3"),
        (b"a: \x01", "is not YAML: unacceptable character"),
        (b'a: "\\UFFFFFFFF"', "is not YAML"),
        (b"#" * (2**20 + 1), "is larger than 1048576 bytes"),
    ],
)
def test_files_that_are_no_yaml(tmp_path: Path, raw: bytes, words: str) -> None:
    """Whatever bytes a file holds, the outcome is a problem that names the file."""
    path = tmp_path / "f.yaml"
    path.write_bytes(raw)
    with pytest.raises(ConfigurationError) as caught:
        load(path)
    assert str(caught.value).startswith(str(path))
    assert words in str(caught.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    """A missing file and a folder are said in the system's words."""
    for path in (tmp_path / "none.yaml", tmp_path):
        with pytest.raises(ConfigurationError, match=r"cannot be read: \w+"):
            load(path)
