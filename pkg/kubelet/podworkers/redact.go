package podworkers

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	v1 "k8s.io/api/core/v1"
)

const (
	// maxMessage in bytes bounds what is shown of an error.
	maxMessage = 512
	// shortest is the length in bytes from which on single words of a specification are taken out of errors. Shorter ones ("-c", "1")
	// say nothing, and would be found everywhere.
	shortest = 3
	redacted = "[…]"
)

// failure is how an operation failed.
type failure struct {
	at    time.Time
	err   error
	count int
}

// view shows a failure without what pod gives to its containers; pod may be nil.
func (f failure) view(pod *v1.Pod) *ErrorView {
	if f.err == nil {
		return nil
	}
	text := oneLine(f.err.Error())
	if pod != nil {
		text = redact(text, private(pod))
	}
	return &ErrorView{Time: f.at, Message: shorten(text, maxMessage), Failures: f.count}
}

// private is what a pod's specification gives to containers: commands, arguments, environment, headers and commands of hooks and
// probes. Errors of the runtime and of hooks repeat them. Longer strings come first, so that no part of one is left.
func private(pod *v1.Pod) []string {
	var hidden []string
	add := func(values ...string) {
		for _, value := range values {
			if value = oneLine(value); len(value) >= shortest {
				hidden = append(hidden, value)
			}
		}
	}
	command := func(argv []string) {
		if len(argv) > 0 {
			add(fmt.Sprint(argv), fmt.Sprintf("%q", argv), strings.Join(argv, " "))
			add(argv...)
		}
	}
	visit := func(c *v1.Container) {
		command(c.Command)
		command(c.Args)
		command(slices.Concat(c.Command, c.Args))
		for _, env := range c.Env {
			add(env.Value)
		}
		for _, handler := range handlers(c) {
			if handler.Exec != nil {
				command(handler.Exec.Command)
			}
			if handler.HTTPGet != nil {
				add(handler.HTTPGet.Path)
				for _, header := range handler.HTTPGet.HTTPHeaders {
					add(header.Value)
				}
			}
		}
	}
	for i := range pod.Spec.InitContainers {
		visit(&pod.Spec.InitContainers[i])
	}
	for i := range pod.Spec.Containers {
		visit(&pod.Spec.Containers[i])
	}
	for i := range pod.Spec.EphemeralContainers {
		c := v1.Container(pod.Spec.EphemeralContainers[i].EphemeralContainerCommon)
		visit(&c)
	}
	slices.SortFunc(hidden, func(a, b string) int { return cmp.Or(cmp.Compare(len(b), len(a)), cmp.Compare(a, b)) })
	return slices.Compact(hidden)
}

// handlers are what a container has of hooks and probes.
func handlers(c *v1.Container) []v1.LifecycleHandler {
	var all []v1.LifecycleHandler
	if c.Lifecycle != nil {
		for _, hook := range []*v1.LifecycleHandler{c.Lifecycle.PostStart, c.Lifecycle.PreStop} {
			if hook != nil {
				all = append(all, *hook)
			}
		}
	}
	for _, probe := range []*v1.Probe{c.LivenessProbe, c.ReadinessProbe, c.StartupProbe} {
		if probe != nil {
			all = append(all, v1.LifecycleHandler{Exec: probe.Exec, HTTPGet: probe.HTTPGet})
		}
	}
	return all
}

// redact takes the hidden strings out of text, where they stand by themselves and not within a word.
func redact(text string, hidden []string) string {
	for _, value := range hidden {
		var out strings.Builder
		rest := text
		for {
			at := strings.Index(rest, value)
			if at < 0 {
				break
			}
			end := at + len(value)
			within := inWord(text, len(text)-len(rest)+at) || inWord(text, len(text)-len(rest)+end)
			out.WriteString(rest[:at])
			if within {
				out.WriteString(value)
			} else {
				out.WriteString(redacted)
			}
			rest = rest[end:]
		}
		text = out.String() + rest
	}
	return text
}

// inWord is true when the characters before and after the place are both of a word.
func inWord(text string, place int) bool {
	before, _ := utf8.DecodeLastRuneInString(text[:place])
	after, _ := utf8.DecodeRuneInString(text[place:])
	return wordly(before) && wordly(after)
}

func wordly(r rune) bool { return r != utf8.RuneError && (unicode.IsLetter(r) || unicode.IsDigit(r)) }

// oneLine replaces what does not belong into a line of text.
func oneLine(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, text)
}

// shorten cuts a text to at most limit bytes, between characters.
func shorten(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	cut := limit - len("…")
	for !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut] + "…"
}
