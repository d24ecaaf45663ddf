# An ordinary flow. It says nothing about retries and knows nothing of Forestay; what goes wrong is in the program, the machines and the scheduler around it.
cwlVersion: v1.2
$graph:
  - id: main
    class: Workflow
    requirements: {ScatterFeatureRequirement: {}}
    inputs: {numbers: {type: "int[]", default: [1, 2]}}
    outputs: {merged: {type: File, outputSource: merge/merged}}
    steps:
      part: {run: "#part", scatter: number, in: {number: numbers}, out: [part]}
      merge: {run: "#merge", in: {parts: part/part}, out: [merged]}
  - id: part
    class: CommandLineTool
    baseCommand: measure
    requirements: {ResourceRequirement: {coresMin: 1, ramMin: 400}}
    inputs: {number: {type: int, inputBinding: {position: 1}}}
    stdout: part.txt
    outputs: {part: stdout}
  - id: merge
    class: CommandLineTool
    baseCommand: cat
    requirements: {ResourceRequirement: {coresMin: 1, ramMin: 400}}
    inputs: {parts: {type: "File[]", inputBinding: {position: 1}}}
    stdout: merged.txt
    outputs: {merged: stdout}
