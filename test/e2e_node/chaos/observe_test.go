package chaos

import (
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

func metaUID(uid string) types.UID { return types.UID(uid) }

// expectOne fails the test unless there is one violation that contains want, or none for "".
func expectOne(t *testing.T, wrong []string, want string) {
	t.Helper()
	switch {
	case want == "" && len(wrong) > 0:
		t.Errorf("violations are %q, want none", wrong)
	case want != "" && (len(wrong) != 1 || !strings.Contains(wrong[0], want)):
		t.Errorf("violations are %q, want one that contains %q", wrong, want)
	}
}

func TestPhases(t *testing.T) {
	for _, test := range []struct {
		phases []v1.PodPhase
		want   string
	}{
		{[]v1.PodPhase{v1.PodPending, v1.PodRunning, v1.PodSucceeded, v1.PodSucceeded}, ""},
		{[]v1.PodPhase{v1.PodRunning, v1.PodPending, v1.PodRunning}, ""},
		{[]v1.PodPhase{v1.PodFailed, v1.PodRunning}, "from Failed to Running"},
		{[]v1.PodPhase{v1.PodSucceeded, v1.PodFailed}, "from Succeeded to Failed"},
		{[]v1.PodPhase{v1.PodFailed, v1.PodPending}, "from Failed to Pending"},
	} {
		p := NewPhases()
		for i, phase := range test.phases {
			p.See(podOf("u", phase), at(float64(i)))
		}
		expectOne(t, p.Violations(), test.want)
	}
}

func TestPhasesReturnWhenAPodEnded(t *testing.T) {
	p := NewPhases()
	p.See(podOf("ended", v1.PodFailed), at(1))
	p.Deleted(podOf("ended", v1.PodFailed), false, at(2))
	p.Deleted(podOf("deleted", v1.PodRunning), false, at(3))
	p.Deleted(podOf("forced", v1.PodRunning), true, at(4))
	for uid, want := range map[string]time.Time{"ended": at(1), "deleted": at(3)} {
		if ended, ok := p.Ended(uid); !ok || !ended.Since.Equal(want) {
			t.Errorf("%s has ended %v since %v, want %v", uid, ok, ended.Since, want)
		}
	}
	for _, uid := range []string{"forced", "unknown"} {
		if ended, ok := p.Ended(uid); ok {
			t.Errorf("%s has ended: %v", uid, ended)
		}
	}
}

// seen is an observation of the runtime: when, and what ran or had ended.
type seen struct {
	at  float64
	run Run
}

func instance(uid, container, id string, started, finished float64) Run {
	run := Run{ID: id, UID: uid, Pod: "pod-" + uid, Container: container, Running: finished == 0, Started: at(started)}
	if finished > 0 {
		run.Finished = at(finished)
	}
	return run
}

func static(run Run) Run {
	run.Static, run.Pod = true, "static-0"
	return run
}

func TestRunsAtOnce(t *testing.T) {
	for _, test := range []struct {
		name string
		seen []seen
		want string
	}{
		{"one after the other", []seen{
			{2, instance("u", "main", "1", 1, 0)},
			{3, instance("u", "main", "1", 1, 2.5)},
			{3, instance("u", "main", "2", 2.6, 0)},
		}, ""},
		{"at the same time", []seen{
			{2, instance("u", "main", "1", 1, 0)},
			{2, instance("u", "main", "2", 1.5, 0)},
		}, "ran at once"},
		{"between two observations", []seen{
			{2, instance("u", "main", "1", 1, 1.9)},
			{2, instance("u", "main", "2", 1.8, 0)},
		}, "ran at once"},
		{"two containers of a pod", []seen{
			{2, instance("u", "main", "1", 1, 0)},
			{2, instance("u", "side", "2", 1, 0)},
		}, ""},
		{"two pods", []seen{{2, instance("u", "main", "1", 1, 0)}, {2, instance("v", "main", "2", 1, 0)}}, ""},
		{"never started", []seen{
			{2, instance("u", "main", "1", 1, 0)},
			{2, Run{ID: "2", UID: "u", Container: "main", Started: at(1)}},
		}, ""},
		{"the end is never reported", []seen{
			{2, instance("u", "main", "1", 1, 0)},
			{4, instance("u", "main", "2", 3, 0)},
		}, ""},
		{"static pods one after the other", []seen{
			{2, static(instance("u", "main", "1", 1, 2))},
			{3, static(instance("v", "main", "2", 2.1, 0))},
		}, ""},
		{"static pods of one name", []seen{
			{2, static(instance("u", "main", "1", 1, 0))},
			{2, static(instance("v", "side", "2", 1.5, 0))},
		}, "ran at once"},
		{"sandboxes of one name", []seen{
			{2, static(instance("u", Sandbox, "1", 1, 0))},
			{2, static(instance("v", Sandbox, "2", 1.5, 0))},
		}, "ran at once"},
	} {
		t.Run(test.name, func(t *testing.T) {
			runs := NewRuns()
			for _, s := range test.seen {
				runs.See(s.run, at(s.at), func(string) (Ended, bool) { return Ended{}, false })
			}
			expectOne(t, runs.Violations(), test.want)
		})
	}
}

func TestRunsOfPodsThatHaveEnded(t *testing.T) {
	ended := func(string) (Ended, bool) { return Ended{Name: "a", Why: "Failed", Since: at(5)}, true }
	for _, test := range []struct {
		began float64
		run   Run
		want  string
	}{
		{4.9, instance("u", "main", "1", 1, 0), ""},
		{5.1, instance("u", "main", "1", 1, 0), "the pod was Failed"},
		{5.1, instance("u", "main", "1", 1, 4), ""},
		{5.1, instance("u", Sandbox, "1", 1, 0), ""},
	} {
		runs := NewRuns()
		runs.See(test.run, at(test.began), ended)
		expectOne(t, runs.Violations(), test.want)
	}
}

func notes(lines ...string) string {
	var text string
	for _, line := range lines {
		text += line + "\n"
	}
	return text
}

func TestInstances(t *testing.T) {
	note := func(word, instance string, second int) string {
		return fmt.Sprintf("%s %s %d", word, instance, start.Unix()+int64(second))
	}
	never := func(uid string) bool { return uid == "never" }
	outages := []Outage{{Kubelet: true, From: at(10.5), To: at(12)}, {Runtime: true, From: at(20.5), To: at(21)}}
	for _, test := range []struct {
		name  string
		notes string
		want  string
	}{
		{"once", notes(note("start", "u/main/1", 1), note("stop", "u/main/1", 9)), ""},
		{"two instances", notes(
			note("start", "u/main/1", 1),
			note("stop", "u/main/1", 5),
			note("start", "u/main/2", 6),
			note("stop", "u/main/2", 9),
		), ""},
		{"hook twice", notes(
			note("start", "u/main/1", 1),
			note("stop", "u/main/1", 5),
			note("stop", "u/main/1", 6),
		), "ran 2 times"},
		{"hook again after a crash", notes(note("stop", "u/main/1", 10), note("stop", "u/main/1", 13)), ""},
		{"hook too often after a crash", notes(
			note("stop", "u/main/1", 10),
			note("stop", "u/main/1", 13),
			note("stop", "u/main/1", 14),
		), "ran 3 times"},
		{"restarted", notes(note("start", "never/main/1", 1), note("start", "never/main/2", 2)), "was started 2 times"},
		{"restarted after a crash of the kubelet", notes(
			note("start", "never/main/1", 9),
			note("start", "never/main/2", 13),
		), "was started 2 times"},
		{"restarted after a crash of the runtime", notes(
			note("start", "never/main/1", 15),
			note("start", "never/main/2", 25),
		), ""},
		{"restarted too often after a crash of the runtime", notes(
			note("start", "never/main/1", 15),
			note("start", "never/main/2", 25),
			note("start", "never/main/3", 26),
		), "was started 3 times"},
		{"sidecar restarted", notes(note("start", "never/side/1", 1), note("start", "never/side/2", 2)), ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			instances, err := Instances(test.notes)
			if err != nil {
				t.Fatal(err)
			}
			expectOne(t, JudgeInstances(instances, never, outages), test.want)
		})
	}
	for _, bad := range []string{"start u/main/1\n", "start u/main 1\n", "begin u/main/1 1\n", "start u/main/1 now\n"} {
		if instances, err := Instances(bad); err == nil {
			t.Errorf("note %q is read as %v", bad, instances)
		}
	}
}

func TestLeftovers(t *testing.T) {
	of := func(uid string) map[string][]string { return map[string][]string{uid: {"/path"}} }
	wanted := Wanted{Active: map[string]bool{"runs": true}, Known: map[string]bool{"runs": true, "ended": true}}
	for _, test := range []struct {
		name  string
		found Found
		want  string
	}{
		{"nothing", Found{}, ""},
		{"of a pod that runs", Found{
			Running: of("runs"), Cgroups: of("runs"), Mounts: of("runs"), Folders: of("runs"), Workers: of("ended"),
		}, ""},
		{"folder of one that ended", Found{Folders: of("ended")}, ""},
		{"mount of one that ended", Found{Mounts: of("ended")}, "mounts of pod ended"},
		{"control group of one that ended", Found{Cgroups: of("ended")}, "control groups of pod ended"},
		{"container of one that is gone", Found{Running: of("gone")}, "running of pod gone"},
		{"folder of one that is gone", Found{Folders: of("gone")}, "folder of pod gone"},
		{"stray", Found{Strays: []string{"x"}}, "unknown to the CRI: x"},
		{"worker of one that is gone", Found{Workers: of("gone")}, "worker of pod gone"},
	} {
		t.Run(test.name, func(t *testing.T) { expectOne(t, Leftovers(test.found, wanted), test.want) })
	}
}

func TestMissing(t *testing.T) {
	of := func(text string) map[string][]string { return map[string][]string{"u": {text}} }
	worker := of("ns/a Syncing")
	for _, test := range []struct {
		name      string
		found     Found
		container string
		want      string
	}{
		{"runs", Found{Running: of("main 123"), Workers: worker}, MainContainer, ""},
		{"only its sandbox", Found{Running: of("sandbox 123"), Workers: worker}, MainContainer, "main of pod u does not run"},
		{"another container", Found{Running: of("main-2 123"), Workers: worker}, MainContainer, "main of pod u does not run"},
		{"no worker", Found{Running: of("main 123")}, MainContainer, "no worker of pod u"},
		{"nothing has to run", Found{Workers: worker}, "", ""},
		{"nothing has to run, no worker", Found{}, "", "no worker of pod u"},
	} {
		t.Run(test.name, func(t *testing.T) {
			expectOne(t, Missing(test.found, Wanted{Runs: map[string]string{"u": test.container}}), test.want)
		})
	}
}

func TestMayExit(t *testing.T) {
	const startup = 30 * time.Second
	of := func(runtime bool, from, to float64) []Outage {
		return []Outage{{Runtime: runtime, From: at(from), To: at(to)}}
	}
	for _, test := range []struct {
		name    string
		outages []Outage
		exited  float64
		want    bool
	}{
		{"no outage", nil, 101, false},
		{"the runtime is down at its start", of(true, 90, 105), 101, true},
		{"the runtime is killed while it starts", of(true, 110, 112), 111, true},
		{"only the kubelet was killed", of(false, 110, 112), 111, false},
		{"the runtime was back before its start", of(true, 90, 99), 101, false},
		{"the runtime is killed after its start", of(true, 131, 133), 131, false},
		{"long after the outage", of(true, 110, 112), 131, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := MayExit(test.outages, at(100), at(test.exited), startup); got != test.want {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}

func TestUIDOfPath(t *testing.T) {
	for path, want := range map[string]string{
		"/root/pods/u-1/volumes/x": "u-1",
		"/root/pods/u-1":           "u-1",
		"/root/plugins/x":          "",
		"/other/pods/u-1":          "",
	} {
		if got := UIDOfPath("/root", path); got != want {
			t.Errorf("%s belongs to %q, want %q", path, got, want)
		}
	}
}
