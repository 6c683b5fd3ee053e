package app

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	debugv1alpha1 "github.com/plimsoll-project/plimsoll/pkg/apis/debug/v1alpha1"
)

func (o *options) rankCommand() *cobra.Command {
	var signal string
	c := &cobra.Command{
		Use:   "rank NODE",
		Short: "Who would be evicted next from a node, and by what pods are ranked",
		Example: `  # For memory
  kubectl pressure rank node-1

  # For the file system of the node, as JSON
  kubectl pressure rank node-1 --signal nodefs.available -o json`,
		Args: cobra.ExactArgs(1), ValidArgsFunction: o.completeNodes,
		RunE: func(c *cobra.Command, args []string) error {
			list, err := o.statuses(c.Context(), args[0], map[string]string{"rank": "true"})
			if err != nil {
				return err
			}
			s := &list.Items[0]
			if s.Status == nil {
				if s.Error == "" {
					return errNoPage
				}
				return fmt.Errorf("%s", s.Error)
			}
			return o.showRank(s.Status, signal)
		},
	}
	o.addOutputFlag(c, allFormats)
	c.Flags().StringVar(&signal, "signal", "memory.available", "The signal that pods are ranked for.")
	return c
}

func (o *options) showRank(s *debugv1alpha1.PressureStatus, signal string) error {
	var known []string
	for i := range s.Rankings {
		k := &s.Rankings[i]
		if k.DryRun {
			continue
		}
		if known = append(known, k.Signal); k.Signal != signal {
			continue
		}
		if isTable, wide := o.isTable(); isTable {
			fmt.Fprintf(o.Out, "As of %s.\n", s.Ranked.Local().Format("15:04:05"))
			if len(k.Candidates) == 0 {
				o.sentence("There is no pod that may be evicted: static and critical pods are not.")
				return nil
			}
			return o.rankTable(k, len(k.Candidates), wide)
		}
		return o.write(k)
	}
	if known == nil {
		return errors.New("the node has no rankings: it has no thresholds, or has made no decision yet")
	}
	return fmt.Errorf("--signal %q: the node has rankings for %q", signal, known)
}

func (o *options) rankTable(k *debugv1alpha1.PressureRanking, most int, wide bool) error {
	columns := []string{"PLACE", "NAMESPACE", "NAME", "PRIORITY", "USAGE", "REQUEST", "GROWTH", "BECAUSE"}
	if wide {
		columns = append(columns, "QOS", "PREFERENCE", "OPTED OUT", "UID")
	}
	t := newTable(o.Out, columns...)
	for i := range k.Candidates[:min(most, len(k.Candidates))] {
		c := &k.Candidates[i]
		cells := []string{fmt.Sprint(i + 1), c.Namespace, c.Name, fmt.Sprint(c.Priority), amountOf(k.Signal, c.Usage),
			amount(k.Signal, c.Request), rate(c.GrowthPerSecond), because(k, i)}
		if wide {
			cells = append(cells, c.QOSClass, fmt.Sprint(c.Preference), fmt.Sprint(c.OptedOut), string(c.UID))
		}
		t.row(cells...)
	}
	if more := len(k.Candidates) - most; more > 0 {
		t.row("", fmt.Sprintf("and %d more", more), "", "", "", "", "", "")
	}
	return t.end()
}

// because says why a candidate has its place: by what it comes after the one before it, or the first one before others.
func because(k *debugv1alpha1.PressureRanking, i int) string {
	c := &k.Candidates[i]
	first := i == 0
	choose := func(before, after string) string {
		if first {
			return before
		}
		return after
	}
	switch c.Reason {
	case "Terminating":
		return choose("is terminating already", "is not terminating")
	case "AboveRequest":
		return choose("is above its request", "is within its request")
	case "Priority":
		return choose("lowest priority", "higher priority")
	case "KnownUsage":
		return choose("usage is known", "usage is unknown")
	case "Preference":
		return choose("greatest preference", "lower preference")
	case "Usage":
		return choose("most above its request", "less above its request")
	case "UID":
		return "its UID"
	case "OnlyCandidate":
		return "no other candidate"
	}
	return c.Reason
}
