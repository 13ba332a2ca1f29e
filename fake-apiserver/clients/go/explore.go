package drydock

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Environment variables: the path of the test program, for scenarios, and the name of the controller to run.
const (
	testVariable       = "DRYDOCK_TEST"
	controllerVariable = "DRYDOCK_CONTROLLER"
)

// Controller runs until its context is done; SIGTERM cancels the context.
type Controller func(ctx context.Context, config *rest.Config) error

// Controllers runs the controller that DRYDOCK_CONTROLLER names, or the tests if it is not set. Call it in TestMain; it
// does not return. A scenario starts a controller with
//
//	command: ["${env.DRYDOCK_TEST}"]
//	env: {DRYDOCK_CONTROLLER: operator}
func Controllers(tests interface{ Run() int }, controllers map[string]Controller) {
	name := os.Getenv(controllerVariable)
	if name == "" {
		os.Exit(tests.Run())
	}
	if err := run(controllers, name); err != nil {
		fmt.Fprintf(os.Stderr, "drydock: %v\n", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func run(controllers map[string]Controller, name string) error {
	controller, ok := controllers[name]
	if !ok {
		var names []string
		for name := range controllers {
			names = append(names, name)
		}
		slices.Sort(names)
		return fmt.Errorf("%s=%s: this controller does not exist; the controllers are %s", controllerVariable, name,
			strings.Join(names, ", "))
	}
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return controller(ctx, config)
}

// Explore explores a scenario, a YAML file, with the command drydock, which runs controllers as processes and injects
// faults. A failure fails the test with the report, which contains a replay string for the smallest plan. args are
// options of `drydock explore`, such as "--budget", "60s" or "--replay", plan. The program is the path in DRYDOCK, or
// the first drydock in PATH.
func Explore(t TB, scenario string, args ...string) {
	t.Helper()
	program, err := findExplorer()
	if err != nil {
		t.Fatalf("drydock: %v", err)
	}
	test, err := os.Executable()
	if err != nil {
		t.Fatalf("drydock: %v", err)
	}
	command := exec.Command(program, append([]string{"explore", scenario}, args...)...)
	command.Env = append(os.Environ(), testVariable+"="+test)
	var report, progress bytes.Buffer
	command.Stdout, command.Stderr = &report, &progress
	err = command.Run()
	var ended *exec.ExitError
	switch {
	case err == nil:
		if log, ok := t.(interface{ Log(...any) }); ok {
			log.Log(report.String())
		}
	case errors.As(err, &ended) && ended.ExitCode() == 1:
		t.Fatalf("drydock: a failure was found\n%s", report.String())
	default:
		t.Fatalf("drydock: %s explore: %v\n%s%s", program, err, report.String(), progress.String())
	}
}

// findExplorer returns the path of the command drydock.
func findExplorer() (string, error) {
	if program := os.Getenv("DRYDOCK"); program != "" {
		return program, nil
	}
	program, err := exec.LookPath("drydock")
	if err != nil {
		return "", errors.New("no program drydock in PATH; download it from a release for Linux or macOS, run " +
			"`pip install drydock-fake-apiserver` or `cargo install drydock-testkit --features processes`, or set DRYDOCK")
	}
	return program, nil
}
