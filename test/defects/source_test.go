package defects

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/printer"
	"go/token"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// stockSource returns a function or method of the stock kubelet as text without comments. The file is below
// pkg/kubelet.
func stockSource(t *testing.T, file, name string) string {
	t.Helper()
	cmd := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/kubernetes")
	cmd.Dir = root
	dir, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	set := token.NewFileSet()
	parsed, err := parser.ParseFile(set, filepath.Join(strings.TrimSpace(string(dir)), "pkg", "kubelet", file), nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, decl := range parsed.Decls {
		if fn, ok := decl.(*ast.FuncDecl); ok && fn.Name.Name == name {
			var text bytes.Buffer
			if err := printer.Fprint(&text, set, fn); err != nil {
				t.Fatal(err)
			}
			return text.String()
		}
	}
	t.Fatalf("stock's %s has no function %s any more: look at the row again", file, name)
	return ""
}

// inOrder fails unless the text contains all parts, one after the other.
func inOrder(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		_, rest, found := strings.Cut(text, part)
		if !found {
			t.Fatalf("stock does not show the defect any more, or shows it elsewhere: %q is not there", part)
		}
		text = rest
	}
}

// TestD4InStockSource: stock discards the context that the pod worker cancels for a shorter grace period before
// anything is stopped.
func TestD4InStockSource(t *testing.T) {
	inOrder(t, stockSource(t, "kubelet.go", "SyncTerminatingPod"), "ctx = klog.NewContext(context.TODO(), logger)",
		"killPod(ctx")
}

// TestD15InStockSource: in stock the handler of notifications and the loop both run a round.
func TestD15InStockSource(t *testing.T) {
	inOrder(t, stockSource(t, "eviction/eviction_manager.go", "Start"), "thresholdHandler :=", "m.synchronize(",
		"go notifier.Start(", "go func()", "m.synchronize(")
}

// TestD34InStockSource: on cgroup v2 stock has a notifier that does nothing.
func TestD34InStockSource(t *testing.T) {
	inOrder(t, stockSource(t, "eviction/threshold_notifier_linux.go", "NewCgroupNotifier"), "IsCgroup2UnifiedMode()",
		"return &disabledThresholdNotifier{}, nil")
}

// TestD38InStockSource: stock allocates resources before it calls the handler that can preempt.
func TestD38InStockSource(t *testing.T) {
	inOrder(t, stockSource(t, "kubelet.go", "NewMainKubelet"), "GetAllocateResourcesPodAdmitHandler()",
		"NewCriticalPodAdmissionHandler(", "NewPredicateAdmitHandler(")
}

// TestD47InStockSource: in stock readers of the allocations take the lock that is held while the checkpoint is written,
// and pod workers read under their own lock.
func TestD47InStockSource(t *testing.T) {
	const file = "allocation/state/state_checkpoint.go"
	inOrder(t, stockSource(t, file, "SetPodResourceInfo"), "sc.mux.Lock()", "defer sc.mux.Unlock()", "sc.storeState(")
	inOrder(t, stockSource(t, file, "storeState"), "sc.checkpointManager.CreateCheckpoint(")
	inOrder(t, stockSource(t, file, "GetPodResourceInfo"), "sc.mux.RLock()")
	inOrder(t, stockSource(t, "pod_workers.go", "UpdatePod"), "p.podLock.Lock()",
		"p.allocationManager.UpdatePodFromAllocation(")
}

// TestRemovedStaticPodInStockSource: stock stops nothing before all sources have reported, so that a static pod whose
// manifest was removed goes on running, and its successor waits for its end.
func TestRemovedStaticPodInStockSource(t *testing.T) {
	inOrder(t, stockSource(t, "kubelet.go", "deletePod"), "!kl.sourcesReady.AllReady()", "return fmt.Errorf",
		"kl.podWorkers.UpdatePod")
}

// TestRejectedStaticPodInStockSource: the removal of a rejected pod creates a worker in stock. The worker is not
// finished when the pod is added again, so that admission is not called; and only pods that have not ended are started
// again, although the status is that of the rejection, which is kept as long as the pod is configured.
func TestRejectedStaticPodInStockSource(t *testing.T) {
	inOrder(t, stockSource(t, "kubelet.go", "HandlePodRemoves"), "kl.podManager.RemovePod(pod)",
		"kl.deletePod(ctx, pod)")
	inOrder(t, stockSource(t, "kubelet.go", "HandlePodAdditions"), "!kl.podWorkers.IsPodTerminationRequested(pod.UID)",
		"kl.allocationManager.AddPod(", "kubetypes.SyncPodCreate")
	inOrder(t, stockSource(t, "kubelet_pods.go", "HandlePodCleanups"), "kl.removeOrphanedPodStatuses(logger, allPods,",
		"activePods := kl.filterOutInactivePods(allPods)", "range activePods", "kl.podWorkers.UpdatePod(")
}

// TestUnmountInStockSource: stock unmounts no volume before all sources have reported, and a pod is finished only when
// its volumes are unmounted.
func TestUnmountInStockSource(t *testing.T) {
	populator := filepath.Join("volumemanager", "populator", "desired_state_of_world_populator.go")
	inOrder(t, stockSource(t, populator, "Run"), "sourcesReady.AllReady()", "dswp.hasAddedPods = true")
	inOrder(t, stockSource(t, filepath.Join("volumemanager", "reconciler", "reconstruct.go"), "readyToUnmount"),
		"!rc.populatorHasAddedPods()", "return false")
	inOrder(t, stockSource(t, "kubelet.go", "SyncTerminatedPod"), "kl.volumeManager.WaitForUnmount",
		"kl.statusManager.TerminatePod")
}

// TestOrphansInStockSource: stock decides by configured and by running pods what is an orphan, not by pod workers.
func TestOrphansInStockSource(t *testing.T) {
	inOrder(t, stockSource(t, "kubelet_pods.go", "HandlePodCleanups"),
		"kl.usernsManager.CleanupOrphanedPodUsernsAllocations(ctx, allPods, runningRuntimePods)",
		"kl.cleanupOrphanedPodDirs(logger, allPods, runningRuntimePods)")
}

// TestOrphanedCgroupsInStockSource: stock removes orphaned cgroups in goroutines, and a pod that starts does not wait
// for them.
func TestOrphanedCgroupsInStockSource(t *testing.T) {
	inOrder(t, stockSource(t, "kubelet_pods.go", "cleanupOrphanedPodCgroups"), "possiblyRunningPods[uid]", "go func()",
		"pcm.Destroy(")
	inOrder(t, stockSource(t, "kubelet.go", "SyncPod"), "pcm.Exists(pod)", "pcm.EnsureExists(")
}

// TestFirstPodsInStockSource: stock's eviction manager gets the pods that were added up to now, whether or not all
// sources have reported, and a source adds its pods one after the other, the oldest first.
func TestFirstPodsInStockSource(t *testing.T) {
	inOrder(t, stockSource(t, "kubelet.go", "initializeRuntimeDependentModules"),
		"kl.evictionManager.Start(ctx, kl.StatsProvider, kl.getAllocatedPods")
	inOrder(t, stockSource(t, "kubelet.go", "HandlePodAdditions"), "PodsByCreationTime(pods)", "range pods",
		"kl.podManager.AddPod(pod)", "kl.allocationManager.AddPod(")
	for _, name := range []string{"getAllocatedPods", "GetActivePods", "filterOutInactivePods"} {
		if strings.Contains(stockSource(t, "kubelet_pods.go", name), "sourcesReady") {
			t.Errorf("stock's %s waits for the sources", name)
		}
	}
}
