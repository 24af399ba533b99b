#!/usr/bin/env bash
# Builds what would be published into dist/: sdist and wheel, built twice and compared byte by byte; their metadata looked
# at by twine; and an SBOM (CycloneDX) of the package with everything that its extras bring, at the versions of
# constraints.txt.  The tools have an environment of their own, and so has what the SBOM lists: both below build/release.
set -euo pipefail
cd "$(dirname "$0")/.."
python=$(scripts/check_environment.sh python)
tools=build/release/tools
bill=build/release/bill
pip_install=(-m pip install -q --disable-pip-version-check -c constraints.txt --build-constraint constraints.txt)

if [ ! -e "$tools/.ready" ]; then
    echo "setting up the tools of a release"
    "$python" -m venv "$tools"
    "$tools/bin/python" -m pip install -q --disable-pip-version-check -c constraints.txt pip
    "$tools/bin/python" "${pip_install[@]}" --group release
    touch "$tools/.ready"
fi

# The time in the archives: that of the last commit where there is one, so that two checkouts of it agree.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 1577836800)}
export SOURCE_DATE_EPOCH
rm -rf dist build/release/first build/release/second
for turn in first second; do
    "$tools/bin/python" -m build --no-isolation --outdir "build/release/$turn" . >"build/release/$turn.txt" 2>&1 ||
        { cat "build/release/$turn.txt" >&2; exit 1; }
done
(cd build/release/first && sha256sum -- *) >build/release/SHA256SUMS
(cd build/release/second && sha256sum --quiet --strict -c ../SHA256SUMS)
mkdir dist
cp build/release/first/* build/release/SHA256SUMS dist/
echo "built twice, with equal bytes:"
sed 's/^/  /' dist/SHA256SUMS
"$tools/bin/twine" check --strict dist/*.whl dist/*.tar.gz

rm -rf "$bill"
"$python" -m venv --without-pip "$bill"
"$tools/bin/python" -m pip --python "$bill/bin/python" install -q --disable-pip-version-check -c constraints.txt \
    --build-constraint constraints.txt "$(echo dist/*.whl)[spark,metrics]"
version=$("$tools/bin/python" -c 'import tomllib; print(tomllib.load(open("pyproject.toml", "rb"))["project"]["version"])')
"$tools/bin/cyclonedx-py" environment --pyproject pyproject.toml --mc-type library --output-reproducible \
    --of JSON -o "dist/rmqstore-$version.cdx.json" "$bill/bin/python"
echo "SBOM: dist/rmqstore-$version.cdx.json, $("$tools/bin/python" -c 'import json, sys; print(len(json.load(open(sys.argv[1]))["components"]))' "dist/rmqstore-$version.cdx.json") components"
