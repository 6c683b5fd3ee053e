package plan

import (
	"fmt"
	"math/rand"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
)

func ids(list []Container) []string {
	names := []string{}
	for _, c := range list {
		names = append(names, c.ID)
	}
	return names
}

func TestContainerOrder(t *testing.T) {
	at := func(minutes int) time.Time { return start.Add(-time.Duration(minutes) * time.Minute) }
	dead := []Container{
		{ID: "last-run", Pod: "active", Name: "c", Created: at(5)},
		{ID: "run-before", Pod: "active", Name: "c", Created: at(40)},
		{ID: "first-run", Pod: "active", Name: "c", Created: at(50)},
		{ID: "init", Pod: "active", Name: "init", Created: at(60)},
		{ID: "job-new", Pod: "job", Name: "c", Created: at(8), PodState: PodTerminated},
		{ID: "job-old", Pod: "old-job", Name: "c", Created: at(90), PodState: PodTerminated},
		{ID: "evicted", Pod: "evicted", Name: "c", Created: at(2), PodState: PodRemoved},
		{ID: "deleted", Pod: "deleted", Name: "c", Created: at(3), PodState: PodRemoved},
		{ID: "just-made", Pod: "deleted", Name: "d", Created: at(0), PodState: PodRemoved},
	}
	garbage, ended := Containers(dead, ContainerPolicy{MaxPerContainer: 1, MinAge: time.Minute}, start)
	if got, want := ids(garbage), []string{"deleted", "evicted", "first-run", "run-before"}; !slices.Equal(got, want) {
		t.Errorf("garbage %v, want %v", got, want)
	}
	if got, want := ids(ended), []string{"job-old", "job-new"}; !slices.Equal(got, want) {
		t.Errorf("of terminated pods %v, want %v", got, want)
	}
	if garbage, _ = Containers(dead, ContainerPolicy{MaxPerContainer: -1}, start); slices.ContainsFunc(garbage,
		func(c Container) bool {
			return c.PodState == PodActive
		}) {
		t.Errorf("of active pods all are kept: %v", ids(garbage))
	}
}

// TestContainersCreatedInTheFuture: the clock was set back after their creation, so that their age is unknown.
func TestContainersCreatedInTheFuture(t *testing.T) {
	dead := []Container{{ID: "dated-ahead", Pod: "gone", Name: "c", Created: start.Add(time.Hour), PodState: PodRemoved}}
	for _, minAge := range []time.Duration{0, time.Minute} {
		if garbage, _ := Containers(dead, ContainerPolicy{MinAge: minAge}, start); len(garbage) != 1 {
			t.Errorf("minimal age %v: garbage %v", minAge, ids(garbage))
		}
	}
}

func TestContainerOrderIsTotal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var dead []Container
		for i := range rapid.IntRange(0, 30).Draw(t, "containers") {
			pod := rapid.IntRange(0, 5).Draw(t, "pod")
			dead = append(dead, Container{
				ID: fmt.Sprint(i), Pod: types.UID(fmt.Sprint(pod)), Name: fmt.Sprint(rapid.IntRange(0, 1).Draw(t, "name")),
				Created: start.Add(-time.Duration(rapid.IntRange(0, 5).Draw(t, "age")) * time.Minute), PodState: PodState(pod % 3),
			})
		}
		p := ContainerPolicy{MaxPerContainer: rapid.IntRange(-1, 2).Draw(t, "keep")}
		garbage, ended := Containers(dead, p, start)
		shuffled := slices.Clone(dead)
		rand.New(rand.NewSource(rapid.Int64().Draw(t, "seed"))).Shuffle(len(shuffled), func(i, j int) {
			shuffled[i], shuffled[j] = shuffled[j], shuffled[i]
		})
		if g, e := Containers(shuffled, p, start); !slices.Equal(g, garbage) || !slices.Equal(e, ended) {
			t.Fatalf("%v %v, permuted %v %v", ids(garbage), ids(ended), ids(g), ids(e))
		}
		gone := map[string]bool{}
		for _, c := range append(garbage, ended...) {
			gone[c.ID] = true
		}
		for _, c := range dead {
			if c.PodState != PodActive && !gone[c.ID] {
				t.Fatalf("%v stays", c)
			}
			newer := 0
			for _, other := range dead {
				if other.Pod == c.Pod && other.Name == c.Name &&
					(other.Created.After(c.Created) || other.Created.Equal(c.Created) && other.ID > c.ID) {
					newer++
				}
			}
			if want := p.MaxPerContainer >= 0 && newer >= p.MaxPerContainer; c.PodState == PodActive && gone[c.ID] != want {
				t.Fatalf("keep %d, %d runs are newer than %v, goes: %v", p.MaxPerContainer, newer, c, gone[c.ID])
			}
		}
	})
}
