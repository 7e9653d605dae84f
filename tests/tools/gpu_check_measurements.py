"""What specd-bench, specd-gpu-daemon and peers.py write on a device, by hand, and the tables of it."""

TIMINGS = """\
{"suite":"gpu","case":"greedy","vocab":128256,"batch":64,"draft":5,"dtype":"bf16",\
"state":"cold","median":31.123,"unit":"us","ratio":1.2300,"ratio_of":"read","base_median":25.303,\
"base_p99":26.000,"checked":6144,"target":1.25,"met":true,"processor":"A \\"B\\""}
{"suite":"gpu","case":"greedy","vocab":128256,"batch":1,"draft":5,"dtype":"bf16",\
"state":"cold","median":7.500,"unit":"us","ratio":3.0000,"ratio_of":"read","base_median":2.500,\
"base_p99":26.000,"checked":96,"target_us":6.00,"met":false,"processor":"A \\"B\\""}
"""
TIMINGS_TABLE = """\
| case   |     us | base us | base |  ratio | target ratio | target us |   met |   B |   K |      V | dtype | checked |
| ------ | -----: | ------: | ---- | -----: | -----------: | --------: | ----: | --: | --: | -----: | ----- | ------: |
| greedy | 31.123 |  25.303 | read | 1.2300 |         1.25 |           |  true |  64 |   5 | 128256 | bf16  |    6144 |
| greedy |  7.500 |   2.500 | read | 3.0000 |              |      6.00 | false |   1 |   5 | 128256 | bf16  |      96 |
"""
DAEMON = """\
{"suite":"daemon","road":"submit","median_us":29.5,"p99_us":41.2,"sharing":"MPS","batch":1,"draft":0,\
"vocab":128256,"dtype":"bf16","rounds":500}
{"suite":"daemon","road":"stream, host waits","median_us":1210.4,"p99_us":4100.0,\
"sharing":"time-sliced","batch":16,"draft":3,"vocab":128256,"dtype":"bf16","rounds":500}
"""
DAEMON_TABLE = """\
| road               | median us | p99 us | sharing     |   B |   K |      V | dtype | rounds |
| ------------------ | --------: | -----: | ----------- | --: | --: | -----: | ----- | -----: |
| submit             |      29.5 |   41.2 | MPS         |   1 |   0 | 128256 | bf16  |    500 |
| stream, host waits |    1210.4 | 4100.0 | time-sliced |  16 |   3 | 128256 | bf16  |    500 |
"""
PEERS = """\
{
 "specd": "1.2.3",
 "peers": [
  {"name": "specd_rejection", "kind": "rejection", "what": "", "checked": "", "difference": ""}
 ],
 "results": [
  {"peer": "specd_rejection", "kind": "rejection", "dtype": "bf16", "vocab": 128256, "batch": 64, \
"draft": 5, "state": "cold", "graph": true, "median_us": 40.5, "checked": 1920, \
"mean_accepted": 3.5, "expected_accepted": 3.49, "ratio": 1.0, "ratio_of": "specd_rejection"},
  {"peer": "flashinfer_chain", "kind": "rejection", "dtype": "bf16", "vocab": 128256, "batch": 64, \
"draft": 5, "state": "cold", "graph": true, "median_us": 129.6, "checked": 1920, \
"mean_accepted": 3.5, "expected_accepted": 3.49, "ratio": 3.2, "ratio_of": "specd_rejection", \
"target": 3.0, "met": true},
  {"peer": "torch_rejection", "kind": "rejection", "dtype": "bf16", "vocab": 128256, "batch": 64, \
"draft": 5, "reason": "OutOfMemoryError", "difference": ""}
 ]
}
"""
PEERS_TABLE = """\
| peer             |    us | ratio | of              | target |  met |   B |   K |      V | dtype | state | graph | accepted | expected | checked |
| ---------------- | ----: | ----: | --------------- | -----: | ---: | --: | --: | -----: | ----- | ----- | ----: | -------: | -------: | ------: |
| specd_rejection  |  40.5 |   1.0 | specd_rejection |        |      |  64 |   5 | 128256 | bf16  | cold  |  true |      3.5 |     3.49 |    1920 |
| flashinfer_chain | 129.6 |   3.2 | specd_rejection |    3.0 | true |  64 |   5 | 128256 | bf16  | cold  |  true |      3.5 |     3.49 |    1920 |
"""
