package plan

import (
	"fmt"
	"math/rand"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var start = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func anyImages(t *rapid.T) []Image {
	list := make([]Image, rapid.IntRange(0, 30).Draw(t, "images"))
	ago := func(name string) time.Time {
		return start.Add(-time.Duration(rapid.IntRange(0, 6).Draw(t, name)) * time.Minute)
	}
	for i := range list {
		// Few IDs and few times, so that ties are common.
		list[i] = Image{
			Key:           Key{ID: fmt.Sprint(rapid.IntRange(0, 9).Draw(t, "id")), Handler: fmt.Sprint(i)},
			Bytes:         rapid.Int64Range(-1, 100).Draw(t, "size"),
			FirstDetected: ago("first"),
			InUse:         rapid.IntRange(0, 3).Draw(t, "use") == 0,
			Pinned:        rapid.IntRange(0, 5).Draw(t, "pinned") == 0,
			RemovalFailed: rapid.IntRange(0, 5).Draw(t, "broken") == 0,
		}
		if rapid.Bool().Draw(t, "used") {
			list[i].LastUsed = ago("last")
		}
	}
	return list
}

func removable(i *Image, p Policy) bool {
	return !i.InUse && !i.Pinned && !i.RemovalFailed && start.Sub(i.FirstDetected) >= p.MinAge
}

func TestForSpaceListsWhatIsNeededAndNoMore(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		images, p := anyImages(t), Policy{MinAge: time.Duration(rapid.IntRange(0, 4).Draw(t, "minAge")) * time.Minute}
		need := rapid.Int64Range(-5, 1000).Draw(t, "need")
		before := slices.Clone(images)
		list := ForSpace(images, need, p, start)
		if !slices.Equal(images, before) {
			t.Fatal("the input was changed")
		}
		var sum, eligible int64
		for i := range list {
			if sum >= need {
				t.Fatalf("%d bytes suffice for %d, and %v is listed as well", sum, need, list[i])
			}
			if !removable(&list[i].Image, p) {
				t.Fatalf("%+v must stay", list[i])
			}
			sum += max(0, list[i].Image.Bytes)
		}
		count := 0
		for i := range images {
			if removable(&images[i], p) {
				count, eligible = count+1, eligible+max(0, images[i].Bytes)
			}
		}
		if sum < min(need, eligible) {
			t.Fatalf("%d bytes are listed, needed %d of %d", sum, need, eligible)
		}
		if all := ForSpace(images, Unlimited, p, start); len(all) != count || !slices.Equal(all[:len(list)], list) {
			t.Fatalf("without limit %v, for %d bytes %v", all, need, list)
		}
	})
}

func TestImageOrderIsTotal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		images := anyImages(t)
		p := Policy{MaxAge: time.Duration(rapid.IntRange(0, 4).Draw(t, "maxAge")) * time.Minute}
		need := rapid.Int64Range(0, 1000).Draw(t, "need")
		shuffled := slices.Clone(images)
		rand.New(rand.NewSource(rapid.Int64().Draw(t, "seed"))).Shuffle(len(shuffled), func(i, j int) {
			shuffled[i], shuffled[j] = shuffled[j], shuffled[i]
		})
		for name, pair := range map[string][2][]Removal{
			"space": {ForSpace(images, need, p, start), ForSpace(shuffled, need, p, start)},
			"age":   {ForAge(images, p, start), ForAge(shuffled, p, start)},
		} {
			if !slices.Equal(pair[0], pair[1]) {
				t.Fatalf("%s: %v, permuted %v", name, pair[0], pair[1])
			}
			if !slices.IsSortedFunc(pair[0], func(a, b Removal) int { return a.Image.LastUsed.Compare(b.Image.LastUsed) }) {
				t.Fatalf("%s: not by last use: %v", name, pair[0])
			}
		}
	})
}

func TestForAge(t *testing.T) {
	p := Policy{MinAge: time.Hour, MaxAge: 10 * time.Minute}
	minutes := func(n int) time.Time { return start.Add(-time.Duration(n) * time.Minute) }
	images := []Image{
		{Key: Key{ID: "used-long-ago"}, FirstDetected: minutes(60), LastUsed: minutes(11)},
		{Key: Key{ID: "used-just-not-too-long-ago"}, FirstDetected: minutes(60), LastUsed: minutes(10)},
		{Key: Key{ID: "never-used-and-old"}, FirstDetected: minutes(11)},
		{Key: Key{ID: "never-used-and-new"}, FirstDetected: minutes(1)},
		{Key: Key{ID: "in-use"}, FirstDetected: minutes(60), LastUsed: minutes(11), InUse: true},
		{Key: Key{ID: "pinned"}, FirstDetected: minutes(60), Pinned: true},
	}
	var ids []string
	for _, r := range ForAge(images, p, start) {
		ids = append(ids, r.Image.Key.ID+" "+string(r.Reason))
	}
	if want := []string{"never-used-and-old age", "used-long-ago age"}; !slices.Equal(ids, want) {
		t.Errorf("got %v, want %v", ids, want)
	}
	if list := ForAge(images, Policy{}, start); list != nil {
		t.Errorf("without a maximal age: %v", list)
	}
}
