#!/usr/bin/env bash
# helm against the command: a chart with hooks and a CRD is installed, upgraded, rolled back and uninstalled.
# $HELM, $KUBECTL and $PYTHON are the programs, $KUBECONFIG leads to the server.
set -euo pipefail
chart=$(dirname "$0")/chart

say() { echo "helm: $*"; }
same() { # WHAT EXPECTED FOUND
    [ "$2" = "$3" ] || { echo "helm: $1 is \"$3\", not \"$2\"" >&2; exit 1; }
}
of() { "$KUBECTL" get "$1" "$2" -o "jsonpath=$3"; }
# Programs that fail show in full why; those that do not, nothing.
helm() { "$HELM" "$@" --timeout 30s > "$OUT" 2>&1 || { cat "$OUT" >&2; return 1; }; }
# The value at a path of the JSON on stdin.
json() {
    "$PYTHON" -c 'import functools as f, json, sys
print(f.reduce(lambda at, key: at[int(key) if key.isdigit() else key], sys.argv[1].split("."), json.load(sys.stdin)))' "$1"
}
OUT=$(mktemp "${TMPDIR:-.}/helm.XXXXXX")
trap 'rm -f "$OUT" "$OUT.dry"' EXIT

# Nothing is made by a dry run, not even the CRD, so the custom resource has no kind.
if helm install shop "$chart" --dry-run=server 2> "$OUT.dry"; then
    echo 'helm: a dry run knows a kind whose CRD is not there' >&2
    exit 1
fi
grep -q 'no matches for kind "Lamp" in version "chart.example.com/v1"' "$OUT.dry" || { cat "$OUT.dry" >&2; exit 1; }
same 'the number of releases after a dry run' '[]' "$("$HELM" list -o json)"
helm install shop "$chart" --wait
same 'the Deployment after --wait' 2 "$(of deployment shop '{.status.availableReplicas}')"
same 'the custom resource' 40 "$(of lamp shop '{.spec.watts}')"
same 'the hook before' 1 "$(of job shop-before '{.status.succeeded}')"
same 'the hook after' 1 "$(of configmap shop-after '{.data.revision}')"
same 'what the chart knows of the server' true "$(of configmap shop '{.data.known}')"
say install

helm upgrade shop "$chart" --wait --set image=shop:2,lamp.watts=60,replicas=3
same 'the image' shop:2 "$(of deployment shop '{.spec.template.spec.containers[0].image}')"
same 'the replicas' 3 "$(of deployment shop '{.status.availableReplicas}')"
same 'the custom resource' 60 "$(of lamp shop '{.spec.watts}')"
same 'the hook after' 2 "$(of configmap shop-after '{.data.revision}')"
say upgrade

if helm upgrade shop "$chart" --wait --set lamp.watts=0 2> /dev/null; then
    echo 'helm: an upgrade to an invalid object succeeds' >&2
    exit 1
fi
same 'the state after an upgrade that fails' failed "$("$HELM" status shop -o json | json info.status)"
helm rollback shop 1 --wait
same 'the image' shop:1 "$(of deployment shop '{.spec.template.spec.containers[0].image}')"
same 'the custom resource' 40 "$(of lamp shop '{.spec.watts}')"
same 'the state after the rollback' deployed "$("$HELM" status shop -o json | json info.status)"
same 'the revision after the rollback' 4 "$("$HELM" list -o json | json 0.revision)"
say rollback

# Somebody else's field makes a conflict, and force takes it.
"$KUBECTL" apply --server-side --force-conflicts --field-manager=other -f - > /dev/null <<< \
    '{kind: ConfigMap, apiVersion: v1, metadata: {name: shop}, data: {revision: "9"}}'
helm upgrade shop "$chart" --wait --server-side=true --force-conflicts
same 'the forced field' 5 "$(of configmap shop '{.data.revision}')"
say force

helm uninstall shop --wait --cascade foreground
same 'what is left' '' "$("$KUBECTL" get deployments,replicasets,services,lamps,pods -l app=shop -o name)"
same 'the number of releases' '[]' "$("$HELM" list -a -o json 2> /dev/null || "$HELM" list -o json)"
same 'the hook that deletes itself' '' "$("$KUBECTL" get job shop-gone --ignore-not-found -o name)"
same 'the CRD' customresourcedefinition.apiextensions.k8s.io/lamps.chart.example.com \
    "$("$KUBECTL" get crd lamps.chart.example.com -o name)"
say uninstall
