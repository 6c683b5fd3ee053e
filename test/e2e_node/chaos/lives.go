package chaos

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Life is what one life of a container left in the notes.
type Life struct {
	// ID names pod, container, and when it was started.
	ID        string
	UID       string
	Container string
	// Starts and Stops are when a container or its preStop hook wrote, to the
	// second.
	Starts, Stops []time.Time
}

// Lives reads notes, as the containers wrote them: a word, a life, a time.
func Lives(notes string) ([]Life, error) {
	lives := map[string]*Life{}
	for line := range strings.Lines(notes) {
		fields := strings.Fields(line)
		if len(fields) != 3 {
			return nil, fmt.Errorf("note %q has %d words, want 3", line, len(fields))
		}
		seconds, err := strconv.ParseInt(fields[2], 10, 64)
		if err != nil {
			return nil, fmt.Errorf("note %q: time: %w", line, err)
		}
		parts := strings.Split(fields[1], "/")
		if len(parts) != 3 {
			return nil, fmt.Errorf("note %q: life is %q, want pod/container/start", line, fields[1])
		}
		life := lives[fields[1]]
		if life == nil {
			life = &Life{ID: fields[1], UID: parts[0], Container: parts[1]}
			lives[life.ID] = life
		}
		at := time.Unix(seconds, 0)
		switch fields[0] {
		case "start":
			life.Starts = append(life.Starts, at)
		case "stop":
			life.Stops = append(life.Stops, at)
		default:
			return nil, fmt.Errorf("note %q: word is %q, want start or stop", line, fields[0])
		}
	}
	var all []Life
	for _, id := range slices.Sorted(maps.Keys(lives)) {
		all = append(all, *lives[id])
	}
	return all, nil
}

// JudgeLives says what is wrong with the lives of one pod: a hook that ran twice
// in one life, and a container that was run again and must not be.
func JudgeLives(lives []Life, never func(uid string) bool, outages []Outage) []string {
	var wrong []string
	runs := map[string]int{}
	for _, life := range lives {
		if n := len(life.Stops); n > 1 && n > 1+interruptions(life.Stops, outages) {
			wrong = append(wrong, fmt.Sprintf("the preStop hook of %s ran %d times: %v", life.ID, n, life.Stops))
		}
		if key := life.UID + "/" + life.Container; life.Container != "side" && never(life.UID) {
			if runs[key]++; runs[key] == 2 {
				wrong = append(wrong, fmt.Sprintf("%s was run again, and its pod is never restarted", key))
			}
		}
	}
	return wrong
}

// interruptions counts the outages that cut off the work of one who called the
// hook and could not know afterwards that it had: they begin between the first
// call and the last.
func interruptions(stops []time.Time, outages []Outage) int {
	count := 0
	for _, outage := range outages {
		// Notes have whole seconds.
		if from := outage.From.Truncate(time.Second); !from.Before(stops[0]) && !from.After(stops[len(stops)-1]) {
			count++
		}
	}
	return count
}

// Repeated counts the hooks that ran more than once in one life.
func Repeated(lives []Life) int {
	count := 0
	for _, life := range lives {
		if len(life.Stops) > 1 {
			count++
		}
	}
	return count
}
