"""Rules about folders: each of the project's own says what it is in a README."""

from findings import Finding

# docs/ is documents itself; folders with a leading dot belong to tools.
_WITHOUT_README = ("docs",)


def check_folders(files):
    paths = {file.path for file in files}
    folders = {path.split("/")[0] for path in paths if "/" in path}
    for folder in sorted(folders):
        if folder.startswith(".") or folder in _WITHOUT_README:
            continue
        if f"{folder}/README.md" not in paths:
            yield Finding(f"{folder}/README.md", 1, "readme",
                          f"{folder}/ has no README.md: say what it is, in which order to read it, "
                          "and what it may include")
