package reporters

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	pressure "github.com/plimsoll-project/plimsoll/pkg/apis/pressure/v1alpha1"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/reporter/merge"
)

// callCases are about polls and streams.
func callCases() []scenario {
	return []scenario{{
		name: "polls only", plugins: one(func() *script { return polled(says("p", "1")) }),
		play: func(r *rig) {
			r.published("p=1")
			r.scripts["p"].set(func(s *script) { s.poll = []merge.Content{says("p", "2")} })
			r.published("p=2")
			if row := r.row("p"); !row.Active || row.Streaming || row.Answered.IsZero() || !row.UnconfirmedSince.IsZero() {
				r.t.Errorf("%+v", row)
			}
		},
	}, {
		name: "a stream only", plugins: one(func() *script { return streamed(says("p", "1")) }),
		play: func(r *rig) {
			r.published("p=1")
			r.scripts["p"].set(func(s *script) { s.message = []merge.Content{says("p", "2")} })
			r.published("p=2")
			r.await("the stream on the page", func() string {
				if row := r.row("p"); !row.Streaming {
					return fmt.Sprintf("%+v", row)
				}
				return ""
			})
		},
	}, {
		name: "polls and a stream, which counts until the next poll", plugins: one(func() *script {
			return &script{poll: []merge.Content{says("p", "1")}, message: []merge.Content{says("p", "1")}}
		}),
		play: func(r *rig) {
			r.published("p=1")
			r.scripts["p"].set(func(s *script) {
				s.message, s.poll = []merge.Content{says("p", "2")}, []merge.Content{says("p", "2")}
			})
			r.published("p=2")
			r.scripts["p"].set(func(s *script) { s.poll = []merge.Content{says("p", "3")} })
			r.published("p=3")
		},
	}, {
		name: "R5: a poll that began before a message does not replace it", plugins: one(func() *script {
			return &script{poll: []merge.Content{says("p", "1")}, message: []merge.Content{says("p", "1")}}
		}),
		play: func(r *rig) {
			r.published("p=1")
			p, hold := r.scripts["p"], make(chan struct{})
			r.polledSince("p", p.set(func(s *script) { s.poll, s.hold = []merge.Content{says("p", "old")}, hold }))
			// Further polls fail, so that the one that is held is the only one that can say anything.
			p.set(func(s *script) {
				s.message, s.pollErr, s.hold = []merge.Content{says("p", "new")}, errors.New("no more"), nil
			})
			r.published("p=new")
			close(hold)
			r.polled("p", 2)
			r.published("p=new")
			r.never("p=old")
		},
	}, {
		name: "R3: a stream that ends is opened again", plugins: one(func() *script { return streamed(says("p", "1")) }),
		play: func(r *rig) {
			r.published("p=1")
			reopened(r, errEnd, "2")
			reopened(r, errors.New("broken"), "3")
			r.always("p")
		},
	}, {
		name: "what an answer leaves out is removed", plugins: one(func() *script {
			return polled(says("a", "1", "b", "1"), content(field(merge.Spec, "NodeResourceProperties",
				`[{"propertyName":"x","propertyValues":["y"]}]`)))
		}),
		play: func(r *rig) {
			r.published("a=1", "b=1")
			r.part("spec.nodeResourceProperties", `[{"propertyName":"x","propertyValues":["y"]}]`)
			r.scripts["p"].set(func(s *script) { s.poll = []merge.Content{says("b", "1")} })
			r.published("b=1")
			r.part("spec.nodeResourceProperties", "")
		},
	}, {
		name: "an empty answer removes everything, and the object stays", plugins: one(func() *script {
			return polled(says("p", "1"))
		}),
		play: func(r *rig) {
			r.published("p=1")
			r.scripts["p"].set(func(s *script) { s.poll = []merge.Content{} })
			r.published()
		},
	}, {
		name: "R4: a poll that hangs delays no other plugin", plugins: func() scripted {
			return scripted{"p": polled(says("p", "1")), "q": polled(says("q", "1"))}
		},
		play: func(r *rig) {
			r.published("p=1", "q=1")
			hold := make(chan struct{})
			r.polledSince("p", r.scripts["p"].set(func(s *script) {
				s.hold, s.poll = hold, []merge.Content{says("p", "2")}
			}))
			r.scripts["q"].set(func(s *script) { s.poll = []merge.Content{says("q", "2")} })
			r.await("the answer of q", func() string {
				if object := r.api.get(); !slices.Contains(listOf(object.GetAnnotations()), "q=2") {
					return fmt.Sprint(object.GetAnnotations())
				}
				return ""
			})
			r.scripts["p"].set(func(s *script) { s.hold = nil })
			close(hold)
			r.published("p=2", "q=2")
			r.always("q")
		},
	}, {
		name:    "R13: when the API server is back, the newest values are written, once",
		plugins: one(func() *script { return polled(says("p", "1")) }),
		play: func(r *rig) {
			r.published("p=1")
			r.api.setDown(true)
			for _, value := range []string{"2", "3", "4"} {
				r.scripts["p"].set(func(s *script) { s.poll = []merge.Content{says("p", value)} })
				r.polled("p", 2)
			}
			r.await("the newest values at the publisher", func() string {
				passed := r.passedOn.Load().Result.CustomNodeResource.Annotations
				return differs(listOf(passed), []string{"p=4"})
			})
			// One attempt may have begun before.
			failures := r.publisher.State().Failures
			r.await("two more attempts", func() string {
				if n := r.publisher.State().Failures; n < failures+2 {
					return fmt.Sprintf("%d, before %d", n, failures)
				}
				return ""
			})
			before := len(r.api.history())
			r.api.setDown(false)
			r.published("p=4")
			r.polled("p", 2)
			if n := len(r.api.history()) - before; n != 1 {
				r.t.Errorf("%d writes", n)
			}
		},
	}, {
		name: "a plugin whose calls fail has nothing to say", plugins: func() scripted {
			return scripted{"p": polled(says("p", "1")), "q": polled(says("q", "1"))}
		},
		play: func(r *rig) {
			r.published("p=1", "q=1")
			r.scripts["p"].set(func(s *script) { s.pollErr = errors.New("out of order") })
			r.goes(r.lost("p"), "q=1")
			r.scripts["p"].set(func(s *script) { s.pollErr = nil })
			r.suspensionEnds("p")
			r.published("p=1", "q=1")
		},
	}}
}

// reopened ends the stream of p, and awaits a message of the next one.
func reopened(r *rig, err error, value string) {
	p := r.scripts["p"]
	_, before := p.called()
	p.set(func(s *script) { s.streamErr = err })
	r.await("another stream", func() string {
		if _, streams := p.called(); streams <= before {
			return fmt.Sprint(streams)
		}
		return ""
	})
	p.set(func(s *script) { s.streamErr, s.message = nil, []merge.Content{says("p", value)} })
	r.published("p=" + value)
}

// suspensionEnds lets the longest time pass for which a plugin behind a socket is not called after five failed calls.
func (r *rig) suspensionEnds(string) { r.fake.Step(5 * time.Minute) }

// big is a value of a number of bytes.
func big(bytes int) merge.ReportField {
	const around = len(`{"example.com/big":""}`)
	return field(merge.Metadata, "Annotations", annotations("big", strings.Repeat("x", bytes-around)))
}

// limitCases are about answers that are refused whole.
func limitCases() (cases []scenario) {
	small := field(merge.Metadata, "Labels", `{}`)
	for _, c := range []struct {
		name, reason string
		beyond       []merge.Content
	}{
		{"a value of more than 256 KiB", "the value has", []merge.Content{content(big(256<<10 + 1))}},
		{"257 fields", "256", []merge.Content{content(slices.Repeat([]merge.ReportField{small}, 257)...)}},
		{"65 contents", "64", slices.Repeat([]merge.Content{content(small)}, 65)},
		{"an answer of more than 1 MiB", "1048576 are allowed", []merge.Content{content(big(256<<10), big(256<<10),
			big(256<<10), big(256<<10))}},
		{"an answer of 10 MiB", "the answer is too large", []merge.Content{content(big(10 << 20))}},
	} {
		for _, stream := range []bool{false, true} {
			change := func(s *script, answer []merge.Content) { s.poll = answer }
			name := c.name + " in a poll"
			begin := func() *script { return polled(says("p", "1")) }
			if stream {
				change = func(s *script, answer []merge.Content) { s.message = answer }
				name = c.name + " in a message"
				begin = func() *script { return streamed(says("p", "1")) }
			}
			cases = append(cases, scenario{
				name:    name,
				plugins: func() scripted { return scripted{"p": begin(), "q": polled(says("q", "1"))} },
				play: func(r *rig) {
					r.published("p=1", "q=1")
					r.scripts["p"].set(func(s *script) { change(s, c.beyond) })
					r.await("the refusal on the page", func() string {
						if list := r.row("p").RefusedAnswers; len(list) != 1 || !strings.Contains(list[0], c.reason) {
							return fmt.Sprint(list)
						}
						return ""
					})
					// The last good answer stays in force, and nobody else is concerned.
					r.scripts["q"].set(func(s *script) { s.poll = []merge.Content{says("q", "2")} })
					r.published("p=1", "q=2")
					r.scripts["p"].set(func(s *script) { change(s, []merge.Content{says("p", "3")}) })
					r.published("p=3", "q=2")
				},
			})
		}
	}
	return append(cases, scenario{
		name: "an answer at the limits",
		plugins: one(func() *script {
			return polled(says("p", "1"), content(slices.Repeat([]merge.ReportField{small}, 255)...))
		}),
		play: func(r *rig) { r.published("p=1") },
	}, scenario{
		name:    "R2: the last good answer before a refused one goes after the grace period",
		plugins: func() scripted { return scripted{"p": polled(says("p", "1")), "q": polled(says("q", "1"))} },
		play: func(r *rig) {
			r.published("p=1", "q=1")
			r.scripts["p"].set(func(s *script) { s.poll = []merge.Content{content(big(256<<10 + 1))} })
			r.goes(r.lost("p"), "q=1")
		},
	})
}

// endCases are about plugins that are no longer called, and restarts of the agent.
func endCases() []scenario {
	disable := func(p *pressure.ReporterPluginsConfiguration) {
		p.Remote, p.InTree = []string{"*", "-p"}, []string{"*", "-p"}
	}
	enable := func(p *pressure.ReporterPluginsConfiguration) { p.Remote, p.InTree = []string{"*"}, []string{"*"} }
	two := func() scripted { return scripted{"p": polled(says("p", "1")), "q": streamed(says("q", "1"))} }
	return []scenario{{
		name: "R2: disabled, its values go after the grace period, and return when it is enabled", plugins: two,
		play: func(r *rig) {
			r.published("p=1", "q=1")
			r.reload(disable)
			r.goes(r.lost("p"), "q=1")
			r.reload(enable)
			r.published("p=1", "q=1")
		},
	}, {
		name: "no grace period", plugins: two,
		options: func(p *pressure.ReporterPluginsConfiguration) { p.StopGracePeriod = &metav1.Duration{} },
		play: func(r *rig) {
			r.published("p=1", "q=1")
			r.reload(disable)
			r.published("q=1")
		},
	}, {
		name: "enabled again within the grace period, its values stay", plugins: two,
		play: func(r *rig) {
			r.published("p=1", "q=1")
			r.reload(disable)
			r.lost("p")
			r.scripts["p"].set(func(s *script) { s.poll = []merge.Content{says("p", "2")} })
			r.reload(enable)
			r.published("p=2", "q=1")
			r.always("p")
		},
	}, {
		name: "a restart removes nothing", plugins: two,
		play: func(r *rig) {
			r.published("p=1", "q=1")
			r.stop()
			r.scripts["p"].set(func(s *script) { s.poll = []merge.Content{says("p", "2")} })
			r.start()
			r.published("p=2", "q=1")
			r.always("p")
			r.always("q")
		},
	}, {
		name: "after a restart the values of a plugin that does not return go after the grace period", plugins: two,
		play: func(r *rig) {
			r.published("p=1", "q=1")
			r.stop()
			c := r.config.Load().DeepCopy()
			disable(&c.Plugins.Reporter)
			r.config.Store(c)
			r.start()
			since := r.clock.Now()
			r.goes(since, "q=1")
		},
	}, {
		name: "after a restart a plugin that hangs keeps its values for the grace period", plugins: two,
		play: func(r *rig) {
			r.published("p=1", "q=1")
			r.stop()
			hold := make(chan struct{})
			defer close(hold)
			r.scripts["q"].set(func(s *script) { s.message = []merge.Content{says("q", "2")} })
			r.scripts["p"].set(func(s *script) { s.hold, s.poll = hold, []merge.Content{says("p", "2")} })
			r.start()
			r.published("p=1", "q=2")
			r.always("p")
		},
	}, {
		name: "an object that somebody deletes comes back", plugins: two,
		play: func(r *rig) {
			r.published("p=1", "q=1")
			r.api.remove()
			r.published("p=1", "q=1")
		},
	}}
}
