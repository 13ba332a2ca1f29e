"""Writes rules and their answers as one file, below the schema they share: merge.py RULES ANSWERS FILE"""
import json
import sys


def line(value):
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")) + "\n"


last = None
with open(sys.argv[1]) as rules, open(sys.argv[2]) as answers, open(sys.argv[3], "w") as out:
    for rule, answer in zip(rules, answers):
        rule, answer = json.loads(rule), json.loads(answer)
        if rule["schema"] != last:
            last = rule["schema"]
            out.write(line({"schema": last}))
        if "error" in answer:
            answer = {"error": answer["error"]}
        elif "evalError" in answer:
            answer = {"evalError": answer["evalError"]}
        else:
            answer = {"cost": answer["cost"], "value": answer.get("value")}
        out.write(line({"rule": rule["rule"], "value": rule["value"], "answer": answer}))
